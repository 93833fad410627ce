package io.aeronspark.reading;

import static io.aeron.logbuffer.FrameDescriptor.BEGIN_FRAG_FLAG;
import static io.aeron.logbuffer.FrameDescriptor.END_FRAG_FLAG;
import static io.aeron.logbuffer.FrameDescriptor.FRAME_ALIGNMENT;
import static io.aeron.protocol.DataHeaderFlyweight.HEADER_LENGTH;
import static io.aeronspark.wire.ChunkLayout.FIRST_OF_GROUP;
import static io.aeronspark.wire.ChunkLayout.FLAGS_OFFSET;
import static io.aeronspark.wire.ChunkLayout.GROUP_OFFSET;
import static io.aeronspark.wire.ChunkLayout.LAST_OF_GROUP;
import static io.aeronspark.wire.ChunkLayout.MAGIC;
import static io.aeronspark.wire.ChunkLayout.ROWS_OFFSET;

import io.aeron.Image;
import io.aeronspark.wire.ChunkLayout;
import java.io.File;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import org.agrona.BitUtil;
import org.agrona.DirectBuffer;
import org.agrona.IoUtil;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Finds the position at which a range of a recording may end: the last one within the limits at which no message is
 * unfinished and, in framed streams, no group of chunks is. It reads headers only. The walk stops by itself at the
 * first boundary that reaches a limit.
 * <p>
 * In framed streams it reads four fields of the chunk header (docs/wire-format.md): magic, flags, rows and group
 * position. Not thread-safe.
 */
public final class BoundaryWalk extends FrameScanner
{
    private static final long NONE = -1;

    private final boolean framed;
    private final boolean atLeastOne;
    private final long limit;
    private final long maxRows;

    private boolean done;
    private boolean hasBoundary;
    private long boundary;
    private long rows;

    private long paddingEnd;
    private boolean inMessage;
    private long messagePosition;
    private int chunkFlags;
    private long chunkRows;
    private long chunkGroup;
    private long openGroup = NONE;

    /**
     * @param framed     whether a range ends between groups of chunks, and not between messages.
     * @param start      position at which the walk begins: the beginning of a message, or of a term.
     * @param limit      highest position that the boundary may have.
     * @param maxRows    most rows between {@code start} and the boundary.
     * @param atLeastOne whether to take the first message or group even if it alone exceeds the limits.
     */
    public BoundaryWalk(
        final int initialTermId,
        final int termLength,
        final boolean framed,
        final long start,
        final long limit,
        final long maxRows,
        final boolean atLeastOne)
    {
        super(initialTermId, termLength);
        this.framed = framed;
        this.boundary = start;
        this.limit = limit;
        this.maxRows = maxRows;
        this.atLeastOne = atLeastOne;
    }

    /**
     * Walk the frames that the image has now.
     *
     * @return whether there were any.
     */
    public boolean walk(final Image image)
    {
        return !done && image.blockPoll(this, MAX_BLOCK_LENGTH) > 0;
    }

    /**
     * Walk a part of a segment file in place.
     *
     * @param path of the segment file.
     * @param base position of the file's first byte.
     * @param from position of the frame to begin at.
     * @param to   position to stop at, within the file and not beyond the archive's recorded position.
     * @return the position reached: {@code to}, the end of padding behind it, or the position of the first frame that
     *         ends behind it or is damaged.
     */
    public long walk(final String path, final long base, final long from, final long to)
    {
        final MappedByteBuffer mapped = IoUtil.mapExistingFile(
            new File(path), FileChannel.MapMode.READ_ONLY, "segment", from - base, to - from);
        try
        {
            return Math.max(from + scan(new UnsafeBuffer(mapped), 0, (int)(to - from), from), paddingEnd);
        }
        finally
        {
            IoUtil.unmap(mapped);
        }
    }

    /**
     * Pass over a damaged part of the recording, as over padding: an unfinished message or group is abandoned.
     *
     * @param end position behind it, at which the walk continues.
     */
    public void onDamage(final long end)
    {
        inMessage = false;
        openGroup = NONE;
        if (end <= limit || (atLeastOne && !hasBoundary))
        {
            hasBoundary = true;
            boundary = end;
        }
        done = end >= limit;
    }

    /** Whether the boundary is final, so that walking on cannot change it. */
    public boolean done()
    {
        return done;
    }

    /** Position of the last boundary within the limits, or -1 if the walk has met none. */
    public long boundary()
    {
        return hasBoundary ? boundary : NONE;
    }

    /** Rows between the beginning of the walk and the boundary. */
    public long rows()
    {
        return rows;
    }

    /**
     * Position at which the message or group began that is unfinished at the end of the walk, or -1 if none is. It is
     * before the walk's start if the walk began in the middle of a group.
     */
    public long open()
    {
        if (inMessage && openGroup < 0)
        {
            return (chunkFlags & FIRST_OF_GROUP) != 0 ? messagePosition : chunkGroup;
        }
        return openGroup;
    }

    @Override
    void onFrame(
        final DirectBuffer buffer, final int offset, final int payloadLength, final byte flags, final long position)
    {
        if (done)
        {
            return;
        }
        if ((flags & BEGIN_FRAG_FLAG) != 0)
        {
            inMessage = true;
            messagePosition = position;
            readChunkHeader(buffer, offset + HEADER_LENGTH, payloadLength);
        }
        else if (!inMessage)
        {
            return; // The message began before the walk.
        }
        if ((flags & END_FRAG_FLAG) != 0)
        {
            inMessage = false;
            onMessage(position + BitUtil.align(payloadLength + HEADER_LENGTH, FRAME_ALIGNMENT));
        }
    }

    private void readChunkHeader(final DirectBuffer buffer, final int offset, final int length)
    {
        chunkFlags = FIRST_OF_GROUP | LAST_OF_GROUP;
        chunkRows = 1;
        chunkGroup = NONE;
        final boolean isLongEnough = length >= ChunkLayout.HEADER_LENGTH;
        if (framed && isLongEnough && buffer.getInt(offset, ByteOrder.LITTLE_ENDIAN) == MAGIC)
        {
            chunkFlags = buffer.getByte(offset + FLAGS_OFFSET);
            chunkRows = buffer.getInt(offset + ROWS_OFFSET, ByteOrder.LITTLE_ENDIAN) & 0xFFFF_FFFFL;
            chunkGroup = buffer.getLong(offset + GROUP_OFFSET, ByteOrder.LITTLE_ENDIAN);
        }
    }

    private void onMessage(final long end)
    {
        if ((chunkFlags & FIRST_OF_GROUP) != 0)
        {
            openGroup = messagePosition;
        }
        else if (openGroup < 0)
        {
            openGroup = chunkGroup;
        }
        if ((chunkFlags & LAST_OF_GROUP) != 0)
        {
            onGroupEnd(end, chunkRows);
        }
    }

    @Override
    void onPadding(final long position, final long end)
    {
        paddingEnd = end;
        if (!done && !inMessage && openGroup < 0 && boundary == position && end <= limit)
        {
            hasBoundary = true;
            boundary = end;
            done = end >= limit;
        }
    }

    private void onGroupEnd(final long end, final long groupRows)
    {
        final boolean isBeyondLimits = end > limit || rows + groupRows > maxRows;
        if (isBeyondLimits && (rows > 0 || !atLeastOne))
        {
            done = true;
            return;
        }
        openGroup = NONE;
        hasBoundary = true;
        boundary = end;
        rows += groupRows;
        done = end >= limit || rows >= maxRows;
    }
}

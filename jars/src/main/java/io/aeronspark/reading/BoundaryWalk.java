package io.aeronspark.reading;

import static io.aeron.logbuffer.FrameDescriptor.BEGIN_FRAG_FLAG;
import static io.aeron.logbuffer.FrameDescriptor.END_FRAG_FLAG;
import static io.aeron.protocol.DataHeaderFlyweight.HEADER_LENGTH;

import io.aeron.Image;
import java.io.File;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import org.agrona.BitUtil;
import org.agrona.DirectBuffer;
import org.agrona.IoUtil;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Finds where a range may end: walks frame headers and remembers the last position at which no message, and in framed streams no
 * group of chunks, is open. The walk stops by itself at the first boundary that reaches a limit.
 * <p>
 * The framed part reads the fields of docs/wire-format.md that it needs: magic, flags, rows and group position.
 */
public final class BoundaryWalk extends FrameScanner
{
    private static final int MAGIC = 0x31467341; // "AsF1", little-endian
    private static final int HEADER = 72;
    private static final int FIRST = 1;
    private static final int LAST = 2;

    private final boolean framed;
    private final boolean atLeastOne;
    private final long limit;
    private final long maxRows;

    private boolean done;
    private boolean moved;
    private long boundary;
    private long rows;

    private boolean inMessage;
    private long messagePosition;
    private int chunkFlags;
    private long chunkRows;
    private long chunkGroup;
    private long openGroup = -1;

    /**
     * @param framed     whether groups of chunks count, not single messages.
     * @param start      where the walk begins: the beginning of a message, or of a term.
     * @param limit      the last boundary at or before this position is wanted.
     * @param maxRows    and the last one with at most this many rows before it.
     * @param atLeastOne whether the first message is taken even where it alone is beyond the limits.
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
     * Walk what the image has now.
     *
     * @return whether something was walked.
     */
    public boolean walk(final Image image)
    {
        return !done && image.blockPoll(this, MAX_BLOCK_LENGTH) > 0;
    }

    /**
     * Walk a part of a segment file in place; the archive's recorded position says how far it is written.
     *
     * @param path     of the segment file.
     * @param base     position of the file's first byte.
     * @param from     position to walk from: a frame's beginning.
     * @param to       position to walk to, within the file.
     * @return the position reached: of the first frame that is not whole before {@code to}.
     */
    public long walk(final String path, final long base, final long from, final long to)
    {
        final MappedByteBuffer mapped = IoUtil.mapExistingFile(
            new File(path), FileChannel.MapMode.READ_ONLY, "segment", from - base, to - from);
        try
        {
            return from + scan(new UnsafeBuffer(mapped), 0, (int)(to - from), from);
        }
        finally
        {
            IoUtil.unmap(mapped);
        }
    }

    /** Whether the walk needs nothing more. */
    public boolean done()
    {
        return done;
    }

    /** The last boundary within the limits, or -1 where the walk saw none. */
    public long boundary()
    {
        return moved ? boundary : -1;
    }

    /** Rows between the walk's beginning and the boundary. */
    public long rows()
    {
        return rows;
    }

    /** Where what is open at the walk's end began: before the walk where it began in the middle of a group, -1 for nothing. */
    public long open()
    {
        if (inMessage && openGroup < 0)
        {
            return (chunkFlags & FIRST) != 0 ? messagePosition : chunkGroup;
        }
        return openGroup;
    }

    @Override
    void onFrame(final DirectBuffer buffer, final int offset, final int payloadLength, final byte flags, final long position)
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
            return;
        }
        if ((flags & END_FRAG_FLAG) != 0)
        {
            inMessage = false;
            onMessage(position + BitUtil.align(payloadLength + HEADER_LENGTH, 32));
        }
    }

    private void readChunkHeader(final DirectBuffer buffer, final int offset, final int length)
    {
        chunkFlags = FIRST | LAST;
        chunkRows = 1;
        chunkGroup = -1;
        if (framed && length >= HEADER && buffer.getInt(offset, ByteOrder.LITTLE_ENDIAN) == MAGIC)
        {
            chunkFlags = buffer.getByte(offset + 6);
            chunkRows = buffer.getInt(offset + 12, ByteOrder.LITTLE_ENDIAN) & 0xFFFF_FFFFL;
            chunkGroup = buffer.getLong(offset + 16, ByteOrder.LITTLE_ENDIAN);
        }
    }

    private void onMessage(final long end)
    {
        if ((chunkFlags & FIRST) != 0)
        {
            openGroup = messagePosition;
        }
        else if (openGroup < 0)
        {
            openGroup = chunkGroup;
        }
        if ((chunkFlags & LAST) != 0)
        {
            offer(end, chunkRows);
        }
    }

    @Override
    void onPadding(final long position, final long end)
    {
        if (!done && !inMessage && openGroup < 0 && boundary == position && end <= limit)
        {
            moved = true;
            boundary = end;
            done = end >= limit;
        }
    }

    private void offer(final long end, final long more)
    {
        final boolean beyond = end > limit || rows + more > maxRows;
        if (beyond && (rows > 0 || !atLeastOne))
        {
            done = true;
            return;
        }
        openGroup = -1;
        moved = true;
        boundary = end;
        rows += more;
        done = end >= limit || rows >= maxRows;
    }
}

package io.aeronspark.reading;

import static io.aeron.protocol.DataHeaderFlyweight.HEADER_LENGTH;
import static io.aeron.protocol.HeaderFlyweight.FLAGS_FIELD_OFFSET;
import static io.aeron.protocol.HeaderFlyweight.HDR_TYPE_DATA;
import static io.aeron.protocol.HeaderFlyweight.HDR_TYPE_PAD;
import static io.aeron.protocol.HeaderFlyweight.TYPE_FIELD_OFFSET;

import io.aeron.logbuffer.BlockHandler;
import io.aeron.logbuffer.FrameDescriptor;
import io.aeron.logbuffer.LogBufferDescriptor;
import java.nio.ByteOrder;
import org.agrona.BitUtil;
import org.agrona.DirectBuffer;

/**
 * Walks the frames of a block and hands each one on with its position. The block comes from an image or from the bytes
 * of a recording. A block holds whole frames only, so the length that a caller asks for limits what a subclass can
 * write.
 * <p>
 * Not thread-safe.
 */
abstract class FrameScanner implements BlockHandler
{
    /** Bytes of the longest block to ask an image for: Aeron 1.51 overflows at larger limits (aeron-io/aeron#2036). */
    static final int MAX_BLOCK_LENGTH = 8 * 1024 * 1024;

    private final int initialTermId;
    private final int termLength;
    private final int positionBitsToShift;

    FrameScanner(final int initialTermId, final int termLength)
    {
        this.initialTermId = initialTermId;
        this.termLength = termLength;
        this.positionBitsToShift = LogBufferDescriptor.positionBitsToShift(termLength);
    }

    @Override
    public final void onBlock(
        final DirectBuffer buffer, final int offset, final int length, final int sessionId, final int termId)
    {
        final long base = LogBufferDescriptor.computePosition(termId, 0, positionBitsToShift, initialTermId);
        scan(buffer, offset, length, base);
    }

    /**
     * Walk {@code length} bytes of whole frames at {@code offset}. A frame at offset o has the position
     * {@code base + o}.
     *
     * @return bytes walked: less than {@code length} only if the rest is not a whole frame.
     */
    final int scan(final DirectBuffer buffer, final int offset, final int length, final long base)
    {
        int at = offset;
        final int end = offset + length;
        while (end - at >= HEADER_LENGTH)
        {
            final int alignedLength = alignedLength(buffer, at, base + at);
            final boolean isData = isData(buffer, at);
            if (alignedLength == 0 || (isData && alignedLength > end - at))
            {
                break;
            }
            if (isData)
            {
                final byte flags = buffer.getByte(at + FLAGS_FIELD_OFFSET);
                final int frameLength = buffer.getInt(at, ByteOrder.LITTLE_ENDIAN);
                onFrame(buffer, at, frameLength - HEADER_LENGTH, flags, base + at);
            }
            else
            {
                onPadding(base + at, base + at + alignedLength);
            }
            at += Math.min(alignedLength, end - at);
        }
        return at - offset;
    }

    /**
     * Bytes of the frame whose header is at {@code at}, with those that align it; 0 if the header is not that of a
     * frame: its length is less than a header, its type is neither data nor padding, or its end is in another term.
     */
    final int alignedLength(final DirectBuffer buffer, final int at, final long position)
    {
        final int frameLength = buffer.getInt(at, ByteOrder.LITTLE_ENDIAN);
        if (frameLength < HEADER_LENGTH || !(isData(buffer, at) || type(buffer, at) == HDR_TYPE_PAD))
        {
            return 0;
        }
        // A damaged file can hold any number in the length field, so the sum needs a long.
        final long alignedLength = BitUtil.align((long)frameLength, FrameDescriptor.FRAME_ALIGNMENT);
        return alignedLength <= termLength - (position & (termLength - 1)) ? (int)alignedLength : 0;
    }

    static boolean isData(final DirectBuffer buffer, final int at)
    {
        return type(buffer, at) == HDR_TYPE_DATA;
    }

    private static int type(final DirectBuffer buffer, final int at)
    {
        return buffer.getShort(at + TYPE_FIELD_OFFSET, ByteOrder.LITTLE_ENDIAN) & 0xFFFF;
    }

    /** Handle a data frame whose header is at {@code offset}; {@code payloadLength} is in bytes, without the header. */
    abstract void onFrame(DirectBuffer buffer, int offset, int payloadLength, byte flags, long position);

    /** Handle a padding frame from {@code position} to {@code end}, which can be beyond the block. */
    abstract void onPadding(long position, long end);
}

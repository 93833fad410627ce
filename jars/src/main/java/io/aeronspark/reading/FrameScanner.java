package io.aeronspark.reading;

import static io.aeron.protocol.DataHeaderFlyweight.HEADER_LENGTH;
import static io.aeron.protocol.HeaderFlyweight.HDR_TYPE_DATA;

import io.aeron.logbuffer.BlockHandler;
import io.aeron.logbuffer.FrameDescriptor;
import io.aeron.logbuffer.LogBufferDescriptor;
import org.agrona.BitUtil;
import org.agrona.DirectBuffer;

/**
 * Walks the frames of a block, whether it came from an image or stands in a segment file, and hands each data frame on with its
 * position. A block always holds whole frames, so whoever limits the block's length has bounded what a frame can write.
 */
abstract class FrameScanner implements BlockHandler
{
    /** Longest block asked for at once: larger limits overflow inside Aeron 1.51 (aeron-io/aeron#2036). */
    static final int MAX_BLOCK_LENGTH = 8 * 1024 * 1024;

    private final int initialTermId;
    private final int positionBitsToShift;

    FrameScanner(final int initialTermId, final int termLength)
    {
        this.initialTermId = initialTermId;
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
     * Walk {@code length} bytes of whole frames at {@code offset}; a frame at offset o has position {@code base + o}.
     *
     * @return bytes walked: less than {@code length} only where the rest is not a whole frame.
     */
    final int scan(final DirectBuffer buffer, final int offset, final int length, final long base)
    {
        int at = offset;
        final int end = offset + length;
        while (end - at >= HEADER_LENGTH)
        {
            final int frameLength = buffer.getInt(at);
            final int aligned = BitUtil.align(frameLength, FrameDescriptor.FRAME_ALIGNMENT);
            final boolean data = (buffer.getShort(at + 6) & 0xFFFF) == HDR_TYPE_DATA;
            // A file may hold anything where a length should stand.
            if (frameLength < HEADER_LENGTH || aligned < 0 || (data && aligned > end - at))
            {
                break;
            }
            if (data)
            {
                onFrame(buffer, at, frameLength - HEADER_LENGTH, buffer.getByte(at + 5), base + at);
            }
            else
            {
                onPadding(base + at, base + at + aligned);
            }
            at += Math.min(aligned, end - at);
        }
        return at - offset;
    }

    abstract void onFrame(DirectBuffer buffer, int offset, int payloadLength, byte flags, long position);

    abstract void onPadding(long position, long end);
}

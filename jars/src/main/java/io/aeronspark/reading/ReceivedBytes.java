package io.aeronspark.reading;

import static io.aeron.protocol.DataHeaderFlyweight.HEADER_LENGTH;
import static io.aeron.protocol.HeaderFlyweight.HDR_TYPE_DATA;

import io.aeron.logbuffer.FrameDescriptor;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.agrona.BitUtil;
import org.agrona.BufferUtil;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * A part of a recording that somebody sends, in pieces cut anywhere: the caller writes each one behind what is there, and says so.
 */
public final class ReceivedBytes extends RecordingBytes
{
    /** The longest data frame, its header included, rounded up: as much may be left over when a piece ends. */
    private static final int LONGEST_FRAME = 128 * 1024;

    private final ByteBuffer memory;
    private final UnsafeBuffer buffer;
    private final int capacity;

    /**
     * Begin to receive.
     *
     * @param pieceLength bytes of the longest piece.
     * @param from        position of the first one: a frame's beginning.
     */
    public ReceivedBytes(final int pieceLength, final long from)
    {
        capacity = pieceLength + LONGEST_FRAME;
        memory = BufferUtil.allocateDirectAligned(capacity, 64);
        buffer = new UnsafeBuffer(memory);
        base = from;
        end = from;
        position = from;
    }

    /** Where pieces are written. */
    public ByteBuffer memory()
    {
        return memory;
    }

    /**
     * Make room for the next piece.
     *
     * @return the offset in {@link #memory()} at which it is to be written.
     */
    public int next()
    {
        skipPadding(); // it may be longer than all that comes in one piece
        final int left = (int)Math.max(0, end - position);
        if (left > LONGEST_FRAME)
        {
            throw new IllegalStateException("no whole frame in " + left + " bytes at position=" + position);
        }
        if (left > 0 && position > base)
        {
            buffer.putBytes(0, buffer, (int)(position - base), left);
        }
        base = end - left;
        return left;
    }

    /** A piece of this length was written. */
    public void added(final int length)
    {
        if (length < 0 || end - base + length > capacity)
        {
            throw new IllegalArgumentException("a piece of " + length + " bytes does not fit");
        }
        end += length;
        skipPadding();
    }

    /** Padding at the end of a term may be longer than everything here, and there is nothing in it. */
    private void skipPadding()
    {
        if (position >= base && end - position >= HEADER_LENGTH)
        {
            final int at = (int)(position - base);
            final int frameLength = buffer.getInt(at, ByteOrder.LITTLE_ENDIAN);
            final boolean data = (buffer.getShort(at + 6, ByteOrder.LITTLE_ENDIAN) & 0xFFFF) == HDR_TYPE_DATA;
            if (!data && frameLength >= HEADER_LENGTH && frameLength <= FrameDescriptor.MAX_MESSAGE_LENGTH * 64)
            {
                position += BitUtil.align(frameLength, FrameDescriptor.FRAME_ALIGNMENT);
            }
        }
    }

    @Override
    UnsafeBuffer buffer()
    {
        return buffer;
    }
}

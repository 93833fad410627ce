package io.aeronspark.reading;

import static io.aeron.protocol.DataHeaderFlyweight.HEADER_LENGTH;
import static io.aeron.protocol.HeaderFlyweight.HDR_TYPE_PAD;
import static io.aeron.protocol.HeaderFlyweight.TYPE_FIELD_OFFSET;

import io.aeron.logbuffer.FrameDescriptor;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.agrona.BitUtil;
import org.agrona.BufferUtil;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * A range of a recording that a server sends in parts, which can end in the middle of a frame. The caller writes each
 * part into {@link #memory()} at the offset that {@link #next()} returns, and then calls {@link #added}.
 */
public final class ReceivedBytes extends RecordingBytes
{
    /** Bytes of the longest data frame, rounded up: a part can end anywhere in it, and its beginning is kept. */
    private static final int MAX_FRAME_LENGTH = 128 * 1024;

    /**
     * @param maxPartLength bytes of the longest part.
     * @param from          position of the first part: the beginning of a frame.
     */
    public ReceivedBytes(final int maxPartLength, final long from)
    {
        super(new UnsafeBuffer(BufferUtil.allocateDirectAligned(maxPartLength + MAX_FRAME_LENGTH, 64)), from, 0);
    }

    /** Memory that parts are written to; the same buffer until the object is collected. */
    public ByteBuffer memory()
    {
        return buffer.byteBuffer();
    }

    /**
     * Make room for the next part: move the beginning of an unfinished frame to the front.
     *
     * @return offset in {@link #memory()} at which to write the part.
     * @throws IllegalStateException if the bytes that are left are longer than any frame, so that none was found in
     *         them.
     */
    public int next()
    {
        skipPadding();
        final int left = (int)Math.max(0, end - position);
        if (left > MAX_FRAME_LENGTH)
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

    /** Make a part of {@code length} bytes readable, which the caller has written. */
    public void added(final int length)
    {
        if (length < 0 || end - base + length > buffer.capacity())
        {
            throw new IllegalArgumentException("a part of " + length + " bytes does not fit");
        }
        end += length;
        skipPadding();
    }

    /** Skip padding as soon as its header is here: it can be longer than the memory, and carries no data. */
    private void skipPadding()
    {
        if (position >= base && end - position >= HEADER_LENGTH)
        {
            final int at = (int)(position - base);
            final int frameLength = buffer.getInt(at, ByteOrder.LITTLE_ENDIAN);
            final boolean isPadding =
                (buffer.getShort(at + TYPE_FIELD_OFFSET, ByteOrder.LITTLE_ENDIAN) & 0xFFFF) == HDR_TYPE_PAD;
            if (isPadding && frameLength >= HEADER_LENGTH && frameLength <= FrameDescriptor.MAX_MESSAGE_LENGTH * 64)
            {
                position += BitUtil.align(frameLength, FrameDescriptor.FRAME_ALIGNMENT);
            }
        }
    }
}

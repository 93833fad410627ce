package io.aeronspark.reading;

import static io.aeron.protocol.DataHeaderFlyweight.HEADER_LENGTH;
import static io.aeron.protocol.DataHeaderFlyweight.SESSION_ID_FIELD_OFFSET;
import static io.aeron.protocol.HeaderFlyweight.HDR_TYPE_DATA;

import io.aeron.archive.checksum.Checksum;
import io.aeron.archive.checksum.Checksums;
import io.aeron.logbuffer.FrameDescriptor;
import java.nio.ByteOrder;
import org.agrona.BitUtil;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Bytes of a recording, as they stand in its segment files, wherever they lie; read frame by frame, each one checked.
 * <p>
 * An archive that records with a checksum keeps it in each data frame's session id; it is of the frame's payload, padding included.
 */
abstract class RecordingBytes
{
    private static final boolean LITTLE = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;

    private final Checksum checksum = Checksums.crc32c();

    /** Position of the buffer's first byte. */
    long base;
    /** Position where what is there ends, perhaps in the middle of a frame. */
    long end;
    /** Position of the next frame to read. */
    long position;

    abstract UnsafeBuffer buffer();

    /** Position of the next frame to read. */
    public final long position()
    {
        return position;
    }

    /** Position where what is there ends, perhaps in the middle of a frame. */
    public final long end()
    {
        return end;
    }

    /**
     * Check and walk whole frames from here on, at most {@code room} bytes of them and none from {@code limit} on.
     *
     * @return bytes walked.
     */
    final int scan(final FrameScanner frames, final int room, final long limit)
    {
        final int offset = (int)(position - base);
        final int stop = (int)(Math.min(limit, end) - base);
        final int length = check(offset, Math.min(room, stop - offset), stop);
        frames.scan(buffer(), offset, length, base);
        position += length;
        return length;
    }

    private int check(final int begin, final int room, final int stop)
    {
        final UnsafeBuffer buffer = buffer();
        int at = begin;
        while (room - (at - begin) > 0 && stop - at >= HEADER_LENGTH)
        {
            final int frameLength = buffer.getInt(at, ByteOrder.LITTLE_ENDIAN);
            final int aligned = BitUtil.align(frameLength, FrameDescriptor.FRAME_ALIGNMENT);
            final boolean data = (buffer.getShort(at + 6, ByteOrder.LITTLE_ENDIAN) & 0xFFFF) == HDR_TYPE_DATA;
            // Padding may be longer than any room, and needs none.
            if (frameLength < HEADER_LENGTH || aligned < 0 || aligned > stop - at || (data && aligned > room - (at - begin)))
            {
                break;
            }
            if (data)
            {
                final int found = checksum.compute(buffer.addressOffset(), at + HEADER_LENGTH, aligned - HEADER_LENGTH);
                final int kept = buffer.getInt(at + SESSION_ID_FIELD_OFFSET, ByteOrder.LITTLE_ENDIAN);
                if ((LITTLE ? found : Integer.reverseBytes(found)) != kept)
                {
                    throw new IllegalStateException("CRC checksum mismatch at position=" + (base + at));
                }
            }
            at += aligned;
        }
        return at - begin;
    }
}

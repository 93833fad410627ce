package io.aeronspark.reading;

import static io.aeron.protocol.DataHeaderFlyweight.HEADER_LENGTH;
import static io.aeron.protocol.DataHeaderFlyweight.SESSION_ID_FIELD_OFFSET;

import io.aeron.archive.checksum.Checksum;
import io.aeron.archive.checksum.Checksums;
import java.nio.ByteOrder;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Bytes of a recording in the format of the archive's segment files. They are read frame by frame, and the checksum of
 * each data frame is verified first.
 * <p>
 * An archive that records with a checksum stores it in the session id field of each data frame. It covers the payload
 * and the bytes that align the frame. Not thread-safe.
 */
abstract class RecordingBytes
{
    private static final boolean IS_LITTLE_ENDIAN = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;

    final UnsafeBuffer buffer;
    /** Position of the buffer's first byte. */
    long base;
    /** Position behind the last byte that the buffer holds; it can be in the middle of a frame. */
    long end;
    /** Position of the next frame to read. */
    long position;

    private final Checksum checksum = Checksums.crc32c();

    /** Begin at {@code base}, the position of a frame, of which the buffer holds {@code length} bytes now. */
    RecordingBytes(final UnsafeBuffer buffer, final long base, final int length)
    {
        this.buffer = buffer;
        this.base = base;
        end = base + length;
        position = base;
    }

    /** Position of the next frame to read. */
    public final long position()
    {
        return position;
    }

    /** Position behind the last byte that can be read; it can be in the middle of a frame. */
    public final long end()
    {
        return end;
    }

    /**
     * Verify whole frames from the current position on and hand them to {@code frames}. Stops before a damaged frame.
     *
     * @param maxLength of the data frames in bytes. Padding that begins within it is skipped, however long it is.
     * @param limit     position at which to stop.
     * @return bytes read, by which the position has advanced.
     * @throws IllegalStateException if the frame at the current position is damaged: its header is not that of a frame,
     *         or its checksum does not match. The position is then unchanged.
     */
    final int scan(final FrameScanner frames, final int maxLength, final long limit)
    {
        final int offset = (int)(position - base);
        final int stop = (int)(Math.min(limit, end) - base);
        final int length = verify(frames, offset, Math.min(maxLength, stop - offset), stop);
        frames.scan(buffer, offset, length, base);
        position += length;
        return length;
    }

    private int verify(final FrameScanner frames, final int begin, final int maxLength, final int stop)
    {
        final UnsafeBuffer buffer = this.buffer;
        int at = begin;
        while (maxLength - (at - begin) > 0 && stop - at >= HEADER_LENGTH)
        {
            final int alignedLength = frames.alignedLength(buffer, at, base + at);
            final boolean isData = FrameScanner.isData(buffer, at);
            if (alignedLength > stop - at || (isData && alignedLength > maxLength - (at - begin)))
            {
                break;
            }
            if (alignedLength == 0 || (isData && !isUnchanged(at, alignedLength)))
            {
                if (at > begin)
                {
                    break; // The frames before it are read first.
                }
                throw new IllegalStateException(
                    (alignedLength == 0 ? "no frame" : "CRC checksum mismatch") + " at position=" + (base + at));
            }
            at += alignedLength;
        }
        return at - begin;
    }

    private boolean isUnchanged(final int at, final int alignedLength)
    {
        final int computed =
            checksum.compute(buffer.addressOffset(), at + HEADER_LENGTH, alignedLength - HEADER_LENGTH);
        final int stored = buffer.getInt(at + SESSION_ID_FIELD_OFFSET, ByteOrder.LITTLE_ENDIAN);
        return (IS_LITTLE_ENDIAN ? computed : Integer.reverseBytes(computed)) == stored;
    }
}

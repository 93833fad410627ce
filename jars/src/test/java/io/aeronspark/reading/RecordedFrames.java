package io.aeronspark.reading;

import static io.aeron.protocol.DataHeaderFlyweight.HEADER_LENGTH;
import static java.nio.ByteOrder.LITTLE_ENDIAN;

import io.aeron.archive.checksum.Checksums;
import io.aeron.protocol.HeaderFlyweight;
import java.nio.charset.StandardCharsets;
import org.agrona.BitUtil;
import org.agrona.concurrent.UnsafeBuffer;

/** Frames of a recording, one behind the other, with the checksums that an archive stores. */
final class RecordedFrames extends RecordingBytes
{
    static final byte BEGIN = (byte)0x80;
    static final byte MIDDLE = 0;
    static final byte END = 0x40;
    static final byte UNFRAGMENTED = (byte)0xC0;

    RecordedFrames()
    {
        super(ArrowColumns.direct(1 << 17), 0, 0);
    }

    /** Append a data frame with a checksum; return its position. */
    long appendData(final byte flags, final byte[] payload, final long reserved)
    {
        final int at = appendHeader(HEADER_LENGTH + payload.length, HeaderFlyweight.HDR_TYPE_DATA, flags);
        buffer.putLong(at + 24, reserved, LITTLE_ENDIAN);
        buffer.putBytes(at + HEADER_LENGTH, payload);
        final int padded = BitUtil.align(payload.length + HEADER_LENGTH, 32) - HEADER_LENGTH;
        final int checksum = Checksums.crc32c().compute(buffer.addressOffset(), at + HEADER_LENGTH, padded);
        buffer.putInt(at + 12, checksum, LITTLE_ENDIAN);
        return at;
    }

    long appendData(final byte flags, final String payload)
    {
        return appendData(flags, payload.getBytes(StandardCharsets.UTF_8), 0);
    }

    /** Append padding of {@code length} bytes, header included; return its position. */
    long appendPadding(final int length)
    {
        return appendHeader(length, HeaderFlyweight.HDR_TYPE_PAD, UNFRAGMENTED);
    }

    /** Append a chunk without values: the fields of its header that a walk reads (docs/wire-format.md). */
    long appendChunk(final int flags, final int rows, final long group)
    {
        final UnsafeBuffer payload = new UnsafeBuffer(new byte[72]);
        payload.putInt(0, 0x31467341, LITTLE_ENDIAN);
        payload.putByte(6, (byte)flags);
        payload.putInt(12, rows, LITTLE_ENDIAN);
        payload.putLong(16, group, LITTLE_ENDIAN);
        return appendData(UNFRAGMENTED, payload.byteArray(), 0);
    }

    /** Walk all frames without verifying their checksums. */
    int walkAll(final FrameScanner frames)
    {
        return frames.scan(buffer, 0, (int)end, 0);
    }

    private int appendHeader(final int frameLength, final int type, final byte flags)
    {
        final int at = (int)end;
        buffer.putInt(at, frameLength, LITTLE_ENDIAN);
        buffer.putByte(at + 4, (byte)0);
        buffer.putByte(at + 5, flags);
        buffer.putShort(at + 6, (short)type, LITTLE_ENDIAN);
        end += BitUtil.align(frameLength, 32);
        return at;
    }
}

package io.aeronspark.spark.plan;

import java.io.Serializable;
import java.util.zip.CRC32;

/**
 * The bytes before a position, by which a recording that was truncated and extended since is recognised.
 *
 * @param length   of the compared bytes, a multiple of {@link #FRAME_ALIGNMENT}.
 * @param checksum CRC-32 of them.
 */
public record Mark(long length, int checksum) implements Serializable
{
    static final int FRAME_ALIGNMENT = 32;

    /** Return the mark of a position; null if the recording has no bytes before it, or they cannot be read. */
    public static Mark before(final RecordedBytes log, final RecordingState state, final long position)
    {
        final long term = Math.floorDiv(position - 1, state.termLength()) * state.termLength();
        final long begin = Math.max(Math.max(state.start(), position - state.mtu()), term);
        final int length = (int)(position - begin);
        if (length <= 0 || length % FRAME_ALIGNMENT != 0)
        {
            return null;
        }
        final byte[] data = log.recordedBytes(state, begin, length);
        return data == null ? null : new Mark(length, checksum(data));
    }

    /** Whether the recording has other bytes before {@code position} than this mark, as far as is known. */
    public boolean isRewritten(final RecordedBytes log, final RecordingState state, final long position)
    {
        if (position - length < state.start() || position > state.end())
        {
            return false;
        }
        final byte[] data = log.recordedBytes(state, position - length, (int)length);
        return data != null && checksum(data) != checksum;
    }

    private static int checksum(final byte[] data)
    {
        final CRC32 crc = new CRC32();
        crc.update(data);
        return (int)crc.getValue();
    }
}

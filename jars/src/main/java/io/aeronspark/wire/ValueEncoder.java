package io.aeronspark.wire;

import static io.aeronspark.wire.ChunkLayout.*;

import io.aeronspark.checksum.Crc32;
import org.agrona.UnsafeApi;

/** Encodes many values at once as one message each, as {@code aeron_spark.wire.values.encode_values} does. */
public final class ValueEncoder
{
    private ValueEncoder()
    {
    }

    /**
     * Encode an Arrow binary column into memory of the caller, as another one. Any thread may call it.
     *
     * @param values       address of the column's bytes.
     * @param offsets      address of its int32 offsets, the first value at index 0.
     * @param count        number of values.
     * @param header       address of the header that each message gets, with its own total, row and checksum.
     * @param headerLength its bytes, with the writer id.
     * @param firstRow     row of the first value.
     * @param messages     address of the messages' bytes: those of the values, and {@code headerLength} for each.
     * @param ends         address of their int32 offsets, {@code count + 1}.
     */
    public static void encode(
        final long values,
        final long offsets,
        final int count,
        final long header,
        final int headerLength,
        final long firstRow,
        final long messages,
        final long ends)
    {
        final int prefixCrc = Crc32.update(0, header, CRC_OFFSET);
        long at = messages;
        int begin = UnsafeApi.getInt(offsets);
        UnsafeApi.putInt(ends, 0);
        for (int row = 0; row < count; row++)
        {
            final int end = UnsafeApi.getInt(offsets + 4L * (row + 1));
            final int length = end - begin;
            UnsafeApi.copyMemory(header, at, headerLength);
            UnsafeApi.putLong(at + TOTAL_OFFSET, length);
            UnsafeApi.putLong(at + ROW_OFFSET, firstRow + row);
            UnsafeApi.copyMemory(values + begin, at + headerLength, length);
            UnsafeApi.putInt(
                at + CRC_OFFSET, Crc32.update(prefixCrc, at + CRC_END, headerLength - CRC_END + length));
            at += headerLength + length;
            UnsafeApi.putInt(ends + 4L * (row + 1), (int)(at - messages));
            begin = end;
        }
    }
}

package io.aeronspark.wire;

import static io.aeronspark.wire.ChunkLayout.*;

import io.aeronspark.checksum.Crc32;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.agrona.UnsafeApi;

/**
 * Decodes many messages at once that are one complete value each, as {@code aeron_spark.wire.values.decode_values}
 * does: into Arrow columns in memory of the caller. A column whose address is 0 is not made. Not thread-safe.
 */
public final class ValueDecoder
{
    private static final long PREFIX_MASK = (1L << 56) - 1; // all but the length of the writer id
    private static final long WHOLE_VALUE =
        MAGIC | (long)VERSION << 32 | (long)BYTES << 40 | (long)(FIRST_OF_GROUP | LAST_OF_GROUP) << 48;
    private static final int NUMBERS_OF_A_RUN = 3;

    private final CharsetDecoder utf8 = StandardCharsets.UTF_8.newDecoder();
    private int[] runs = new int[16 * NUMBERS_OF_A_RUN];
    private int runsLength;
    private long writer;
    private int writerLength;

    /**
     * Decode messages of an Arrow binary column until the first one that is not one complete and valid value.
     *
     * @param messages   address of the column's bytes.
     * @param offsets    address of its int32 offsets, the column's first message at index 0.
     * @param first      index of the first message to decode.
     * @param last       index behind the last one.
     * @param ends       address of int32 offsets of the values, one more than messages.
     * @param values     address of the values' bytes; as many as the messages have are enough.
     * @param published  address of int64, ns since 1970.
     * @param batches    address of int64.
     * @param partitions address of int32.
     * @param rows       address of int64.
     * @return the number of decoded messages; {@link #writerRuns()} has their writers.
     */
    public int decode(
        final long messages,
        final long offsets,
        final int first,
        final int last,
        final long ends,
        final long values,
        final long published,
        final long batches,
        final long partitions,
        final long rows)
    {
        long prefix = 0;
        int prefixCrc = 0;
        int headerLength = 0;
        int size = 0;
        int count = 0;
        runsLength = 0;
        if (values != 0)
        {
            UnsafeApi.putInt(ends, 0);
        }
        long at = messages + UnsafeApi.getInt(offsets + 4L * first);
        for (; count < last - first; count++)
        {
            final long end = messages + UnsafeApi.getInt(offsets + 4L * (first + count + 1));
            final int length = (int)(end - at);
            if (length < HEADER_LENGTH)
            {
                break;
            }
            final long found = UnsafeApi.getLong(at);
            if (found != prefix || headerLength == 0)
            {
                if ((found & PREFIX_MASK) != WHOLE_VALUE)
                {
                    break;
                }
                prefix = found;
                prefixCrc = Crc32.update(0, at, CRC_OFFSET);
                headerLength = headerLength((int)(found >>> 56));
            }
            final int payloadLength = length - headerLength;
            if (payloadLength < 0 || !isOneValue(at, payloadLength) ||
                Crc32.update(prefixCrc, at + CRC_END, length - CRC_END) != UnsafeApi.getInt(at + CRC_OFFSET) ||
                !noteWriter(messages, at + HEADER_LENGTH, (int)(prefix >>> 56), count))
            {
                break;
            }
            if (values != 0)
            {
                UnsafeApi.copyMemory(at + headerLength, values + size, payloadLength);
                size += payloadLength;
                UnsafeApi.putInt(ends + 4L * (count + 1), size);
            }
            copyLong(at + PUBLISHED_OFFSET, published, count);
            copyLong(at + BATCH_OFFSET, batches, count);
            copyLong(at + ROW_OFFSET, rows, count);
            if (partitions != 0)
            {
                UnsafeApi.putInt(partitions + 4L * count, UnsafeApi.getInt(at + PARTITION_OFFSET));
            }
            at = end;
        }
        return count;
    }

    /**
     * The writers of the messages that the last call decoded, as runs of messages with one writer: for each run the
     * number of its first message among the decoded ones, and the place of the writer id in the column's bytes, its
     * first byte and its length.
     */
    public int[] writerRuns()
    {
        return Arrays.copyOf(runs, runsLength);
    }

    private static boolean isOneValue(final long at, final int payloadLength)
    {
        return UnsafeApi.getInt(at + ROWS_OFFSET) == 1 &&
            UnsafeApi.getLong(at + GROUP_OFFSET) == NOT_CONTINUED &&
            UnsafeApi.getLong(at + TOTAL_OFFSET) == payloadLength &&
            UnsafeApi.getLong(at + PAYLOAD_OFFSET) == 0;
    }

    private static void copyLong(final long from, final long column, final int row)
    {
        if (column != 0)
        {
            UnsafeApi.putLong(column + 8L * row, UnsafeApi.getLong(from));
        }
    }

    /** Begin another run if the writer is not that of the message before. Return whether its id is UTF-8. */
    private boolean noteWriter(final long messages, final long id, final int length, final int row)
    {
        if (row > 0 && length == writerLength && equal(id, writer, length))
        {
            return true;
        }
        if (!isUtf8(id, length))
        {
            return false;
        }
        writer = id;
        writerLength = length;
        if (runsLength == runs.length)
        {
            runs = Arrays.copyOf(runs, 2 * runsLength);
        }
        runs[runsLength] = row;
        runs[runsLength + 1] = (int)(id - messages);
        runs[runsLength + 2] = length;
        runsLength += NUMBERS_OF_A_RUN;
        return true;
    }

    private static boolean equal(final long one, final long other, final int length)
    {
        int at = 0;
        for (; at <= length - 8; at += 8)
        {
            if (UnsafeApi.getLong(one + at) != UnsafeApi.getLong(other + at))
            {
                return false;
            }
        }
        for (; at < length; at++)
        {
            if (UnsafeApi.getByte(one + at) != UnsafeApi.getByte(other + at))
            {
                return false;
            }
        }
        return true;
    }

    private boolean isUtf8(final long id, final int length)
    {
        final byte[] bytes = new byte[length];
        for (int at = 0; at < length; at++)
        {
            bytes[at] = UnsafeApi.getByte(id + at);
        }
        try
        {
            utf8.decode(ByteBuffer.wrap(bytes));
            return true;
        }
        catch (final CharacterCodingException ex)
        {
            return false;
        }
    }
}

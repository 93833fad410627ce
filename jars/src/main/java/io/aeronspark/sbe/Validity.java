package io.aeronspark.sbe;

/** Validity bits of some rows, 64 in a word. */
final class Validity
{
    final long[] words = new long[Value.CHUNK / 64];

    static long ones(final int count)
    {
        return count == 64 ? -1L : (1L << count) - 1;
    }

    void setAll(final int rows)
    {
        for (int word = 0, left = rows; left > 0; word++, left -= 64)
        {
            words[word] = ones(Math.min(64, left));
        }
    }

    void clear(final int row)
    {
        words[row >> 6] &= ~(1L << row);
    }

    boolean get(final int row)
    {
        return (words[row >> 6] & 1L << row) != 0;
    }

    int nulls(final int rows)
    {
        int valid = 0;
        for (int word = 0; word < (rows + 63) / 64; word++)
        {
            valid += Long.bitCount(words[word]);
        }
        return rows - valid;
    }
}

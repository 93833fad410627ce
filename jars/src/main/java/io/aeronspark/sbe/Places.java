package io.aeronspark.sbe;

import java.util.Arrays;

/** The lengths, counts and buffers of all columns, for the caller to make its arrays. */
final class Places
{
    private long[] numbers = new long[64];
    private int count;

    void clear()
    {
        count = 0;
    }

    void add(final long number)
    {
        if (count == numbers.length)
        {
            numbers = Arrays.copyOf(numbers, 2 * count);
        }
        numbers[count++] = number;
    }

    void add(final OutputBuffer buffer)
    {
        add(buffer.offset);
        add(buffer.used);
    }

    long[] toArray()
    {
        return Arrays.copyOf(numbers, count);
    }
}

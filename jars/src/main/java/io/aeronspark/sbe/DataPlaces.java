package io.aeronspark.sbe;

import java.util.Arrays;

/** Where the bytes of one data field are, for each entry of its level. */
final class DataPlaces
{
    final Level level;
    private int[] places = new int[0];
    private int[] lengths = new int[0];
    private long totalLength;

    DataPlaces(final Level level)
    {
        this.level = level;
    }

    void clear()
    {
        totalLength = 0;
    }

    void set(final int index, final int place, final int length)
    {
        reserve(index + 1);
        places[index] = place;
        lengths[index] = length;
        totalLength += length;
    }

    /** Store that the data are absent in the entries from {@code from} to {@code to}. */
    void setAbsent(final int from, final int to)
    {
        reserve(to);
        Arrays.fill(places, from, to, Level.ABSENT);
        Arrays.fill(lengths, from, to, 0);
    }

    /** Index of the first byte, or {@link Level#ABSENT}. */
    int place(final int index)
    {
        return places[index];
    }

    int length(final int index)
    {
        return lengths[index];
    }

    /** An upper bound for the bytes of all entries: it includes those of messages that were left out later. */
    long totalLength()
    {
        return totalLength;
    }

    private void reserve(final int capacity)
    {
        if (capacity > places.length)
        {
            final int length = Math.max(capacity, level.bases.length);
            places = Arrays.copyOf(places, length);
            lengths = Arrays.copyOf(lengths, length);
        }
    }
}

package io.aeronspark.sbe;

import java.util.Arrays;

/**
 * The blocks of one kind in a batch: those of a message type, or the entries of a group. An entry has the index of its
 * first byte, or {@link #ABSENT}, and the version of its message. A group also has the ends of its entries for each
 * entry of the level above.
 */
final class Level
{
    static final int ABSENT = -1;
    private static final int FIRST_CAPACITY = 1024;

    int count;
    int[] bases = new int[FIRST_CAPACITY];
    int[] versions = new int[FIRST_CAPACITY];
    int minVersion;
    boolean hasAbsent;

    /** The level that this group is a part of; null for a message type. */
    Level parent;
    /** For each entry of the parent, the count of entries up to its end; its complement if the group is absent. */
    private int[] ends = new int[0];

    void clear()
    {
        count = 0;
        minVersion = Integer.MAX_VALUE;
        hasAbsent = false;
    }

    void add(final int base, final int version)
    {
        if (count == bases.length)
        {
            grow(2 * count);
        }
        bases[count] = base;
        versions[count++] = version;
        if (version < minVersion)
        {
            minVersion = version;
        }
    }

    /** Make room for {@code capacity} entries in all. */
    void reserve(final int capacity)
    {
        if (capacity > bases.length)
        {
            grow(capacity);
        }
    }

    /** Add {@code entries} blocks of {@code length} bytes that follow each other. */
    void addAll(final int first, final int length, final int entries, final int version)
    {
        if (count + entries > bases.length)
        {
            grow(Math.max(count + entries, 2 * count));
        }
        int base = first;
        for (int index = count, end = count + entries; index < end; index++)
        {
            bases[index] = base;
            versions[index] = version;
            base += length;
        }
        count += entries;
        if (version < minVersion)
        {
            minVersion = version;
        }
    }

    /** Add absent entries up to {@code newCount}. */
    void pad(final int newCount)
    {
        if (newCount > count)
        {
            if (newCount > bases.length)
            {
                grow(Math.max(newCount, 2 * count));
            }
            Arrays.fill(bases, count, newCount, ABSENT);
            Arrays.fill(versions, count, newCount, 0);
            count = newCount;
            hasAbsent = true;
        }
    }

    /** Store that the group ends here for the entry {@code index} of its parent. */
    void endGroup(final int index, final boolean isPresent)
    {
        if (index >= ends.length)
        {
            ends = Arrays.copyOf(ends, parent.bases.length);
        }
        ends[index] = isPresent ? count : ~count;
    }

    /** Store that the group is absent for the entries from {@code from} to {@code to} of its parent. */
    void endGroups(final int from, final int to)
    {
        if (to > ends.length)
        {
            ends = Arrays.copyOf(ends, parent.bases.length);
        }
        Arrays.fill(ends, from, to, ~count);
    }

    boolean isGroupPresent(final int index)
    {
        return ends[index] >= 0;
    }

    int groupEnd(final int index)
    {
        final int end = ends[index];
        return end >= 0 ? end : ~end;
    }

    /** Whether a value of this version is in each entry. */
    boolean isEverywhere(final int since)
    {
        return !hasAbsent && since <= minVersion;
    }

    boolean isPresent(final int index, final int since)
    {
        return bases[index] >= 0 && since <= versions[index];
    }

    private void grow(final int capacity)
    {
        bases = Arrays.copyOf(bases, capacity);
        versions = Arrays.copyOf(versions, capacity);
    }
}

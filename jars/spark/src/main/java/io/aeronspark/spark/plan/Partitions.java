package io.aeronspark.spark.plan;

import java.util.ArrayList;
import java.util.List;

/**
 * Distributes ranges to Spark partitions: many small ranges in one partition, a large range in a separate one. Ranges
 * of one recording keep their order.
 */
public final class Partitions
{
    /** Bytes of the log in one Spark partition of small ranges: some tens of milliseconds of reading. */
    static final long PACK_BYTES = 32 << 20;

    private Partitions()
    {
    }

    /**
     * Return the partitions. With {@code minPartitions > 0}, large ranges are split at term boundaries, which are
     * message boundaries, until there are at least so many partitions or no further terms.
     */
    public static List<List<Range>> bySize(final List<Range> ranges, final int minPartitions)
    {
        final List<Range> filled = ranges.stream().filter((range) -> range.length() > 0).toList();
        if (minPartitions <= 0)
        {
            return pack(filled, PACK_BYTES);
        }
        final long total = filled.stream().mapToLong(Range::length).sum();
        long partBytes = Math.max(1, ceilDiv(total, minPartitions));
        while (true)
        {
            final List<Range> parts = new ArrayList<>();
            for (final Range range : filled)
            {
                split(range, partBytes, parts);
            }
            // Parts have complete terms, so they may be larger, and fewer, than intended.
            final List<List<Range>> partitions = pack(parts, Math.min(PACK_BYTES, partBytes));
            if (partitions.size() >= minPartitions || partBytes == 1)
            {
                return partitions;
            }
            partBytes = Math.max(1, partBytes / 2);
        }
    }

    private static List<List<Range>> pack(final List<Range> ranges, final long target)
    {
        final List<List<Range>> partitions = new ArrayList<>();
        List<Range> packed = new ArrayList<>();
        long filled = 0;
        for (final Range range : ranges)
        {
            if (!packed.isEmpty() && filled + range.length() > target)
            {
                partitions.add(packed);
                packed = new ArrayList<>();
                filled = 0;
            }
            packed.add(range);
            filled += range.length();
        }
        if (!packed.isEmpty())
        {
            partitions.add(packed);
        }
        return partitions;
    }

    /** Split a range into equal parts of about {@code target} bytes, at the nearest term boundaries. */
    private static void split(final Range range, final long target, final List<Range> parts)
    {
        final long term = range.termLength();
        // More than two parts per term would not find more boundaries.
        final long count = Math.min(ceilDiv(range.length(), target), 2 * (range.length() / term + 1));
        long start = range.start();
        for (long number = 1; number < count; number++)
        {
            // length * number / count, which could exceed a long
            final long ideal =
                range.start() + range.length() / count * number + range.length() % count * number / count;
            final long edge = (ideal + term / 2) / term * term;
            if (start < edge && edge < range.end())
            {
                parts.add(range.part(start, edge));
                start = edge;
            }
        }
        parts.add(range.part(start, range.end()));
    }

    private static long ceilDiv(final long value, final long divisor)
    {
        return -Math.floorDiv(-value, divisor);
    }
}

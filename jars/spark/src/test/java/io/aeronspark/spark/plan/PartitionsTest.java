package io.aeronspark.spark.plan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

class PartitionsTest
{
    private static final int TERM = 64 * 1024;

    private static Range range(final long id, final long start, final long end)
    {
        return new Range("embedded/" + id, "0", start, end, end, TERM, null);
    }

    @Test
    void shouldPackSmallRangesInOnePartitionAndLeaveOutEmptyOnes()
    {
        final List<List<Range>> partitions =
            Partitions.bySize(List.of(range(1, 0, 96), range(2, 32, 32), range(3, 0, 64)), 0);
        assertEquals(List.of(List.of(range(1, 0, 96), range(3, 0, 64))), partitions);
    }

    @Test
    void shouldGiveALargeRangeItsOwnPartition()
    {
        final Range large = range(2, 0, Partitions.PACK_BYTES);
        assertEquals(
            List.of(List.of(range(1, 0, 64)), List.of(large)), Partitions.bySize(List.of(range(1, 0, 64), large), 0));
    }

    @Test
    void shouldSplitAtTermsAndCoverTheRangeExactly()
    {
        final List<List<Range>> partitions = Partitions.bySize(List.of(range(1, 96, 10 * TERM + 32)), 4);
        assertTrue(partitions.size() >= 4);
        long at = 96;
        for (final List<Range> partition : partitions)
        {
            for (final Range part : partition)
            {
                assertEquals(at, part.start());
                assertEquals(10 * TERM + 32, part.batchEnd());
                assertTrue(part.end() % TERM == 0 || part.end() == part.batchEnd());
                at = part.end();
            }
        }
        assertEquals(10 * TERM + 32, at);
    }

    @Test
    void shouldNotOverflowWithManyPartitionsOfALongRecording()
    {
        final long end = 1L << 45;
        final List<List<Range>> partitions =
            Partitions.bySize(List.of(new Range("a/1", "0", 0, end, end, 1 << 30, null)), 4096);
        assertEquals(end, partitions.stream().flatMap(List::stream).mapToLong(Range::length).sum());
    }

    @Test
    void shouldEndWithFewerPartitionsIfThereAreNoFurtherTerms()
    {
        assertEquals(1, Partitions.bySize(List.of(range(1, 0, 320)), 8).size());
    }
}

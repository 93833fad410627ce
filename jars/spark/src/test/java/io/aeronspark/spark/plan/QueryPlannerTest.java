package io.aeronspark.spark.plan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.option.ReadOptions;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;

class QueryPlannerTest
{
    private final MemoryLog log = new MemoryLog();

    private List<Range> plan(final FilterBounds filters, final String... options)
    {
        final Map<String, String> all = new HashMap<>(Map.of("channel", "aeron:ipc", "streamId", "1001"));
        for (int i = 0; i < options.length; i += 2)
        {
            all.put(options[i], options[i + 1]);
        }
        return new QueryPlanner(ReadOptions.of(all, false), log, () -> 1_000_000_000_000L, (finding) ->
        {
            throw finding.error();
        }).whole(filters);
    }

    private static List<Long> bounds(final List<Range> ranges)
    {
        return ranges.stream().flatMap((range) -> List.of(range.start(), range.end()).stream()).toList();
    }

    @Test
    void shouldReadWholeRecordingsWithMarksByDefault()
    {
        log.add("embedded/1", 0, 640, 7, 1);
        log.add("embedded/2", 64, 128, 8, 2);
        final List<Range> ranges = plan(FilterBounds.NONE);
        assertEquals(List.of(0L, 640L, 64L, 128L), bounds(ranges));
        assertEquals(640, ranges.get(0).mark().length());
        assertEquals(64, ranges.get(1).mark().length());
    }

    @Test
    void shouldReadMessagesOfOverlappingRecordingsOnce()
    {
        log.add("embedded/1", 0, 640, 7, 1);
        log.add("embedded/2", 320, 960, 7, 1);
        log.add("embedded/3", 0, 640, 9, 3);
        assertEquals(List.of(0L, 640L, 640L, 960L, 0L, 640L), bounds(plan(FilterBounds.NONE)));
    }

    @Test
    void shouldCompareMessagesWhereFilesCannotBeRead()
    {
        log.withoutFiles().add("embedded/1", 0, 640, 7, 1);
        log.add("embedded/2", 320, 960, 7, 1);
        log.add("embedded/3", 0, 640, 9, 3);
        final List<Range> ranges = plan(FilterBounds.NONE);
        assertEquals(List.of(0L, 640L, 640L, 960L, 0L, 640L), bounds(ranges));
        assertEquals(null, ranges.get(0).mark());
    }

    @Test
    void shouldCombineTheBoundsOfOptionsAndFilters()
    {
        log.add("embedded/1", 0, 640, 7, 1);
        log.add("embedded/2", 0, 640, 8, 2);
        assertEquals(
            List.of(128L, 256L),
            bounds(plan(new FilterBounds(100L, 256L, Set.of(7), null), "startPosition", "64", "endPosition", "512")));
        assertEquals(List.of(0L, 640L), bounds(plan(new FilterBounds(null, null, null, Set.of(2L)))));
        assertEquals(List.of(), plan(new FilterBounds(null, null, Set.of(8), null), "sessionIds", "7"));
        assertEquals(List.of(), plan(new FilterBounds(512L, 128L, null, null)));
    }

    @Test
    void shouldStartAtTheFirstMessageOfATime()
    {
        log.add("embedded/1", 64, 10 * MemoryLog.TERM, 7, 1);
        for (final long first : new long[]{0, 64, 65, MemoryLog.TERM, 5 * MemoryLog.TERM + 640, 10 * MemoryLog.TERM - 64})
        {
            final long expected = Math.max(64, (first + 63) / 64 * 64);
            final String time = "1970-01-01T00:00:00." + String.format("%09d", first);
            assertEquals(
                List.of(expected, 10L * MemoryLog.TERM),
                bounds(plan(FilterBounds.NONE, "startingTimestamp", time, "timestampFrom", "reserved-ns")));
        }
        assertEquals(
            List.of(), plan(FilterBounds.NONE, "startingTimestamp", "-10s", "timestampFrom", "reserved-ns"));
        final String end = "1970-01-01T00:00:00.000000200";
        assertEquals(
            List.of(64L, 256L), bounds(plan(FilterBounds.NONE, "endingTimestamp", end, "timestampFrom", "reserved-ns")));
        final OptionError order = assertThrows(OptionError.class, () -> plan(
            FilterBounds.NONE, "startingTimestamp", end, "endingTimestamp", end, "timestampFrom", "reserved-ns"));
        assertTrue(order.getMessage().contains("'endingTimestamp' is not after 'startingTimestamp'"));
        final OptionError error =
            assertThrows(OptionError.class, () -> plan(FilterBounds.NONE, "startingTimestamp", "-10s"));
        assertTrue(error.getMessage().contains("publish times, which are unknown for the messages of recording"));
    }

    @Test
    void shouldRefuseOffsetsThatDoNotExist()
    {
        log.add("embedded/1", 64, 640, 7, 1);
        final OptionError inside =
            assertThrows(OptionError.class, () -> plan(FilterBounds.NONE, "startingOffsets", "{\"1\": 96}"));
        assertTrue(inside.getMessage().contains("position 96 of recording embedded/1 is inside a message. Use 128"));
        final OptionError outside =
            assertThrows(OptionError.class, () -> plan(FilterBounds.NONE, "endingOffsets", "{\"1\": 32}"));
        assertTrue(outside.getMessage().contains("position 32 is outside of recording embedded/1, expected 64 to 640"));
        final OptionError unknown =
            assertThrows(OptionError.class, () -> plan(FilterBounds.NONE, "startingOffsets", "{\"2\": 64}"));
        assertTrue(unknown.getMessage().contains("has recording 2, which the stream does not have"));
        final OptionError twice = assertThrows(
            OptionError.class,
            () -> plan(FilterBounds.NONE, "startingOffsets", "{\"1\": 64, \"embedded/1\": 128}"));
        assertTrue(twice.getMessage().contains("names recording embedded/1 twice"));
    }
}

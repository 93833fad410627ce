package io.aeronspark.spark.plan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;

import io.aeronspark.spark.option.ReadOptions;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** The parts of a query that the cases of {@code planner.jsonl} do not have: requests to record, metrics, the clock. */
class StreamPlannerTest
{
    private final MemoryLog log = new MemoryLog();
    private long now;

    private StreamPlanner planner(final String... options)
    {
        final Map<String, String> all = new HashMap<>(Map.of(
            "channel", "aeron:ipc", "streamId", "1001", "payload", "raw", "startingOffsets", "earliest"));
        for (int i = 0; i < options.length; i += 2)
        {
            all.put(options[i], options[i + 1]);
        }
        return new StreamPlanner(ReadOptions.of(all, true), () -> now, (finding) ->
        {
            throw finding.error();
        });
    }

    @Test
    void shouldRequestARecordingOnceInEachRunOfTheArchive()
    {
        final StreamPlanner planner = planner();
        final QueryOffset start = planner.initial(log);
        planner.latest(log, start, true);
        assertEquals(List.of("auto"), log.requests());
        log.restart();
        planner.latest(log, start, true);
        assertEquals(List.of("auto", "auto"), log.requests());
    }

    @Test
    void shouldNotRequestARecordingOfWhatIsRecordedOrOnlyRead()
    {
        log.add("embedded/1", 0, 640, 7, 1);
        planner("record", "never").initial(log);
        log.restart();
        log.setRecorded();
        planner().initial(log);
        assertEquals(List.of(), log.requests());
    }

    @Test
    void shouldReportTheLagAfterTheLastPlannedBatch()
    {
        log.add("embedded/1", 0, 640, 7, 1);
        log.add("embedded/2", 0, 192, 8, 2);
        final StreamPlanner planner = planner("record", "never", "maxRowsPerTrigger", "4");
        final QueryOffset start = planner.initial(log);
        assertEquals("0", planner.metrics().get("lagBytes"));
        planner.latest(log, start, true);
        assertEquals(
            Map.of("lagBytes", "576", "maxLagBytes", "512", "recordings", "2", "activeRecordings", "0"),
            planner.metrics());
    }

    @Test
    void shouldWaitForMinBytesAtMostAsLongAsTheDelay()
    {
        log.add("embedded/1", 0, 640, 7, 1);
        final StreamPlanner planner =
            planner("record", "never", "minBytesPerTrigger", "1024", "maxTriggerDelay", "10ms");
        final QueryOffset start = planner.initial(log);
        now = 9_999_999;
        assertSame(start, planner.latest(log, start, true));
        now = 10_000_000;
        assertEquals(640, planner.latest(log, start, true).position("embedded/1"));
        final StreamPlanner withoutLimit = planner("record", "never", "minBytesPerTrigger", "1024");
        withoutLimit.prepareAvailableNow(log);
        assertEquals(640, withoutLimit.latest(log, start, true).position("embedded/1"));
    }
}

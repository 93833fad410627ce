package io.aeronspark.spark.plan;

import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.option.Bounds;
import io.aeronspark.spark.option.ReadOptions;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.LongSupplier;

/** Plans a batch query over the stream of its options. Not thread-safe. */
public final class QueryPlanner
{
    private final ReadOptions options;
    private final Log log;
    private final Inspection inspection;
    private final OptionPositions positions;

    /**
     * @param clock returns nanoseconds since 1970.
     * @param warn  is called with each loss that option 'failOnDataLoss' accepts.
     */
    public QueryPlanner(
        final ReadOptions options, final Log log, final LongSupplier clock, final Consumer<Finding> warn)
    {
        this.options = options;
        this.log = log;
        this.inspection = new Inspection(log);
        this.positions = new OptionPositions(options, log, clock, warn);
    }

    /** Return the first message of the newest recording with messages, or null if nothing is recorded. */
    public Message firstMessage()
    {
        return inspection.firstMessage(log.states());
    }

    /**
     * Return the ranges of a batch query.
     *
     * @throws OptionError if the stream has no recording: otherwise a wrong port would look like an empty stream.
     */
    public List<Range> whole(final FilterBounds filters)
    {
        final List<RecordingState> states = log.states();
        log.checkRecorded(states);
        final Bounds bounds = options.bounds();
        final Map<String, Long> starts = positions.starting(states);
        final Map<String, Long> ends = positions.ending(states, starts);
        final List<Overlaps.Wanted> wanted = new ArrayList<>();
        final Map<String, RecordingState> byKey = new LinkedHashMap<>();
        for (final RecordingState state : states)
        {
            final long first = starts.get(state.key());
            final long last = ends.get(state.key());
            if (last < first)
            {
                throw new OptionError(
                    "option 'endingOffsets': position " + last + " of recording " + state.key() + " is before the " +
                    "start of the batch at " + first,
                    "End the batch at 'latest' or at a later position, or start it earlier.");
            }
            if (filters.include(state) && (bounds.sessions().isEmpty() || bounds.sessions().contains(state.sessionId())))
            {
                final Range given = within(Range.of(state, first, last), state, bounds.start(), bounds.end());
                final Range range = within(given, state, filters.start(), filters.end());
                if (range.length() > 0)
                {
                    wanted.add(new Overlaps.Wanted(range, state));
                    byKey.put(state.key(), state);
                }
            }
        }
        return new Overlaps(log, byKey.values())
            .eachOnce(wanted)
            .stream()
            .map((range) -> range.marked(Mark.before(log, byKey.get(range.key()), range.batchEnd())))
            .toList();
    }

    /** Return the part of a range whose messages begin in {@code [start, end)}, each of which can be null. */
    private Range within(final Range range, final RecordingState state, final Long start, final Long end)
    {
        if (range.length() <= 0)
        {
            return range;
        }
        final long begin = start == null ? range.start() : Math.max(range.start(), positions.atGiven(state, start));
        final long stop = end == null ? range.end() : Math.min(range.end(), positions.atGiven(state, end));
        return range.bounded(begin, stop);
    }
}

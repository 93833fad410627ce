package io.aeronspark.spark.plan;

import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.option.Bounds;
import io.aeronspark.spark.option.ReadOptions;
import io.aeronspark.spark.option.TimestampFrom;
import io.aeronspark.spark.option.WantedOffsets;
import java.util.ArrayList;
import java.util.HashMap;
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
    private final LongSupplier clock;
    private final Consumer<Finding> warn;

    /**
     * @param clock returns nanoseconds since 1970.
     * @param warn  is called with each loss that option 'failOnDataLoss' accepts.
     */
    public QueryPlanner(
        final ReadOptions options, final Log log, final LongSupplier clock, final Consumer<Finding> warn)
    {
        this.clock = clock;
        this.options = options;
        this.log = log;
        this.inspection = new Inspection(log);
        this.warn = warn;
    }

    /** Return the first message of the newest recording with messages, or null if nothing is recorded. */
    public Message firstMessage()
    {
        final List<RecordingState> newest = new ArrayList<>(log.states());
        newest.sort((one, other) ->
        {
            final int byTime = Long.compare(other.startTimestamp(), one.startTimestamp());
            return byTime != 0 ? byTime : other.key().compareTo(one.key());
        });
        for (final RecordingState state : newest)
        {
            final Message found = inspection.firstMessage(state);
            if (found != null)
            {
                return found;
            }
        }
        return null;
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
        final Map<String, Long> starts = starting(states);
        final Map<String, Long> ends = resolve(options.endingOffsets(), states, "endingOffsets");
        final List<Overlaps.Wanted> wanted = new ArrayList<>();
        final Map<String, RecordingState> byKey = new HashMap<>();
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
        return new Overlaps(log)
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
        final long begin = start == null ? range.start() : Math.max(range.start(), atGiven(state, start));
        final long stop = end == null ? range.end() : Math.min(range.end(), atGiven(state, end));
        return range.bounded(begin, stop);
    }

    /**
     * Return the first begin of a message at or after a position that a user has given.
     *
     * @throws io.aeronspark.spark.error.DataLossError if a damaged part hides it, unless the options accept that.
     */
    private long atGiven(final RecordingState state, final long position)
    {
        final long found = inspection.atMessage(state, position);
        final long damage = found == position ? BoundaryRule.NONE : inspection.damageBefore(state, position);
        if (damage != BoundaryRule.NONE)
        {
            final Finding finding = Finding.damaged(state.key(), damage, state.end());
            if (options.failOnDataLoss())
            {
                throw finding.error();
            }
            warn.accept(finding);
        }
        return found;
    }

    private Map<String, Long> starting(final List<RecordingState> states)
    {
        if (options.startingTimestamp() == null)
        {
            return resolve(options.startingOffsets(), states, "startingOffsets");
        }
        final TimestampFrom location = options.timestampFrom();
        if (location == null)
        {
            throw withoutTimes(states);
        }
        final long timeNs = options.startingTimestamp().at(clock.getAsLong());
        final Map<String, Long> positions = new HashMap<>();
        for (final RecordingState state : states)
        {
            positions.put(state.key(), inspection.positionAt(state, timeNs, PublishTime.at(location)));
        }
        return positions;
    }

    private static OptionError withoutTimes(final List<RecordingState> states)
    {
        return new OptionError(
            states.isEmpty() ?
                "option 'startingTimestamp' needs 'timestampFrom' for a stream that has nothing recorded yet" :
                "option 'startingTimestamp' needs publish times, which are unknown for the messages of recording " +
                states.get(0).key(),
            "Set 'timestampFrom' to 'reserved-ns', 'reserved-ms' or a byte offset.");
    }

    private Map<String, Long> resolve(
        final WantedOffsets wanted, final List<RecordingState> states, final String option)
    {
        final NamedPositions named = new NamedPositions(wanted, states, log.archives(), option);
        final Map<String, Long> positions = new HashMap<>();
        for (final RecordingState state : states)
        {
            final long value = named.of(state);
            if (value >= 0)
            {
                positions.put(state.key(), checkedBegin(state, value, option));
            }
            else
            {
                final boolean isEarliest = value == WantedOffsets.EARLIEST;
                positions.put(state.key(), isEarliest ? state.start() : inspection.lastMessage(state));
            }
        }
        return positions;
    }

    private long checkedBegin(final RecordingState state, final long position, final String option)
    {
        final long next = atGiven(state, position);
        if (next != position && inspection.damageBefore(state, position) == BoundaryRule.NONE)
        {
            throw new OptionError(
                "option '" + option + "': position " + position + " of recording " + state.key() + " is inside a " +
                "message",
                "Use " + next + ", the start of the next message, or a value of column 'position'.");
        }
        return next;
    }
}

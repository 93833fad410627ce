package io.aeronspark.spark.plan;

import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.option.Moment;
import io.aeronspark.spark.option.ReadOptions;
import io.aeronspark.spark.option.TimestampFrom;
import io.aeronspark.spark.option.WantedOffsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.LongSupplier;

/** Finds the positions that options give, as offsets or as times. Not thread-safe. */
final class OptionPositions
{
    private final ReadOptions options;
    private final Log log;
    private final Inspection inspection;
    private final LongSupplier clock;
    private final Consumer<Finding> warn;

    /**
     * @param clock returns nanoseconds since 1970.
     * @param warn  is called with each accepted loss.
     */
    OptionPositions(
        final ReadOptions options, final Log log, final LongSupplier clock, final Consumer<Finding> warn)
    {
        this.options = options;
        this.log = log;
        this.inspection = new Inspection(log);
        this.clock = clock;
        this.warn = warn;
    }

    /**
     * Return the first begin of a message at or after a position that a user has given.
     *
     * @throws io.aeronspark.spark.error.DataLossError if a damaged part hides it, unless the options accept that.
     */
    long atGiven(final RecordingState state, final long position)
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

    /** Return the first position of each recording by the options. */
    Map<String, Long> starting(final List<RecordingState> states)
    {
        if (options.startingTimestamp() == null)
        {
            return resolve(options.startingOffsets(), states, "startingOffsets");
        }
        return at(options.startingTimestamp(), states, "startingTimestamp");
    }

    /** Return the last position of each recording by the options; a time before {@code starts} gives no rows. */
    Map<String, Long> ending(final List<RecordingState> states, final Map<String, Long> starts)
    {
        final Moment first = options.startingTimestamp();
        final Moment last = options.endingTimestamp();
        if (last == null)
        {
            return resolve(options.endingOffsets(), states, "endingOffsets");
        }
        final long now = clock.getAsLong();
        if (first != null && first.at(now) >= last.at(now))
        {
            throw new OptionError(
                "option 'endingTimestamp' is not after 'startingTimestamp'",
                "Give a later end, or an earlier start. Negative times are before now.");
        }
        final Map<String, Long> ends = at(last, states, "endingTimestamp");
        ends.replaceAll((key, end) -> Math.max(end, starts.get(key)));
        return ends;
    }

    /** Return the first message of each recording at or after a time. */
    private Map<String, Long> at(final Moment time, final List<RecordingState> states, final String option)
    {
        final TimestampFrom location = options.timestampFrom();
        if (location == null)
        {
            throw withoutTimes(states, option);
        }
        final long timeNs = time.at(clock.getAsLong());
        final Map<String, Long> positions = new HashMap<>();
        for (final RecordingState state : states)
        {
            positions.put(state.key(), inspection.positionAt(state, timeNs, PublishTime.at(location)));
        }
        return positions;
    }

    private static OptionError withoutTimes(final List<RecordingState> states, final String option)
    {
        return new OptionError(
            states.isEmpty() ?
                "option '" + option + "' needs 'timestampFrom' for a stream that has nothing recorded yet" :
                "option '" + option + "' needs publish times, which are unknown for the messages of recording " +
                states.get(0).key(),
            "Set 'timestampFrom' to 'reserved-ns', 'reserved-ms' or a byte offset.");
    }

    /** Return the position of an option in each recording. */
    Map<String, Long> resolve(
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

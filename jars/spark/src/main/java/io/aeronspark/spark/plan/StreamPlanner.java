package io.aeronspark.spark.plan;

import io.aeronspark.spark.error.DataFormatError;
import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.error.PythonText;
import io.aeronspark.spark.option.BatchLimits;
import io.aeronspark.spark.option.ReadOptions;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Consumer;
import java.util.function.LongSupplier;

/**
 * Plans the micro-batches of a streaming query. Each operation gets the log again, because an archive may have ended in
 * between. The state is what a restarted query finds again. Not thread-safe.
 */
public final class StreamPlanner
{
    private static final String RAW = "raw";

    private final ReadOptions options;
    private final SourceStream stream;
    private final LongSupplier clock;
    private final Consumer<Finding> warn;
    private final Losses losses;
    private final Map<String, String> finished = new HashMap<>(); // fingerprints of read recordings by key
    private Object prepared;
    private long lastBatchNs;
    private Map<String, Long> targets;
    private List<RecordingState> listed = List.of();
    private Set<String> covered = Set.of();
    private QueryOffset plannedEnd;

    /**
     * @param clock returns nanoseconds since 1970.
     * @param warn  is called with each loss that option 'failOnDataLoss' accepts.
     */
    public StreamPlanner(final ReadOptions options, final LongSupplier clock, final Consumer<Finding> warn)
    {
        this.options = options;
        this.stream = SourceStream.of(options.route().channel(), options.route().streamId());
        this.clock = clock;
        this.warn = warn;
        this.losses = new Losses(options.failOnDataLoss(), warn);
        this.lastBatchNs = clock.getAsLong();
    }

    /** Return the first message of the newest recording with messages, or null if nothing is recorded. */
    public Message firstMessage(final Log log)
    {
        return new Inspection(log).firstMessage(states(log));
    }

    /** Return the first offset of a new query. */
    public QueryOffset initial(final Log log)
    {
        final List<RecordingState> states = followed(log);
        final Map<String, Long> positions = positions(log).starting(states);
        return QueryOffset.first(new Overlaps(log, states).earliestWanted(positions), states, stream);
    }

    /** Store the current ends of the recordings as those of {@code Trigger.AvailableNow}; start no recording. */
    public void prepareAvailableNow(final Log log)
    {
        targets = new HashMap<>();
        states(log).forEach((state) -> targets.put(state.key(), state.end()));
    }

    /**
     * Return the end of the batch after {@code given}, or that offset if there is nothing to read yet. If it has no
     * stream, the end has it, even without progress.
     *
     * @throws OptionError for an offset of another stream, before any other request.
     */
    public QueryOffset latest(final Log log, final QueryOffset given, final boolean isLimited)
    {
        plannedEnd = planned(log, ofStream(log, given), isLimited);
        return plannedEnd;
    }

    private QueryOffset planned(final Log log, final QueryOffset start, final boolean isLimited)
    {
        final List<RecordingState> states = followed(log);
        final QueryOffset known = start.finish(findFinished(start, states));
        final Overlaps overlaps = new Overlaps(log, states);
        final Losses.Checked checked = losses.check(known, states, findRewritten(log, known, states), overlaps);
        final Map<String, Long> begins = overlaps.skip(checked.positions());
        // The targets of Trigger.AvailableNow were readable at its start.
        final List<RecordingState> available =
            overlaps.shareOut(targets == null ? states : cap(states, targets), begins);
        final Map<String, Long> backlogs = backlogs(known, begins, available);
        if (isLimited && !isDue(backlogs.values()))
        {
            return start;
        }
        final BatchLimits limits = options.limits();
        final Long maxBytes = targets == null ? limits.maxBytes() : limits.availableNowBytes();
        final BatchEnd batch = BatchEnd.plan(
            begins,
            available,
            backlogs.keySet(),
            log,
            isLimited ? maxBytes : null,
            isLimited ? limits.maxRows() : null,
            start.turn());
        final Map<String, Long> ends = new HashMap<>(begins);
        ends.putAll(batch.positions());
        // Otherwise a purge or deletion of messages that were read in another recording would look like a loss.
        final Map<String, Long> waiting = overlaps.waiting(begins, ends);
        begins.putAll(waiting);
        ends.putAll(waiting);
        covered = overlaps.covered(ends);
        final QueryOffset end =
            known.advance(ends, states, begins, batch.finished(), batch.turn(), moved(known, checked, begins));
        if (end == known)
        {
            return start;
        }
        lastBatchNs = clock.getAsLong();
        return completed(log, end, states);
    }

    /**
     * Return the ranges between two offsets of the query.
     *
     * @throws OptionError for offsets of another stream.
     */
    public List<Range> between(final Log log, final QueryOffset start, final QueryOffset end)
    {
        ofStream(log, start);
        ofStream(log, end);
        final List<RecordingState> states = states(log);
        final QueryOffset begun = start.begin(end);
        final Set<String> rewritten = new HashSet<>();
        for (final RecordingState state : states)
        {
            final Long read = end.position(state.key());
            final Mark mark = end.marks().get(state.key());
            if (read != null && mark != null && !read.equals(begun.position(state.key())) &&
                mark.isRewritten(log, state, read))
            {
                rewritten.add(state.key());
            }
        }
        return losses.between(begun, end, states, rewritten);
    }

    /** Return the ends of the recordings in the last list, the stream and the lag, as JSON; null without recordings. */
    public String report()
    {
        final Map<String, Long> ends = new HashMap<>();
        listed.forEach((state) -> ends.put(state.key(), state.end()));
        return ends.isEmpty() ? null : OffsetJson.report(ends, plannedEnd == null ? null : lag(), stream);
    }

    /** Return the metrics of the source for the query's progress. */
    public Map<String, String> metrics()
    {
        final Collection<Long> lags = plannedEnd == null ? List.of() : lag().values();
        final Map<String, String> metrics = new TreeMap<>();
        metrics.put("lagBytes", String.valueOf(lags.stream().mapToLong(Long::longValue).sum()));
        metrics.put(
            "maxLagBytes", String.valueOf(lags.stream().mapToLong(Long::longValue).max().orElse(0)));
        metrics.put("recordings", String.valueOf(listed.size()));
        metrics.put("activeRecordings", String.valueOf(listed.stream().filter(RecordingState::isActive).count()));
        return metrics;
    }

    /** Return the unread bytes of each recording with any after the last planned batch. */
    private Map<String, Long> lag()
    {
        final Map<String, Long> lag = new HashMap<>();
        for (final RecordingState state : listed)
        {
            final Long read = plannedEnd.position(state.key());
            final Finished done = plannedEnd.done().get(state.key());
            final boolean isRead = done != null && done.seen() == state.end();
            final long unread = isRead ? 0 : state.end() - (read == null ? 0 : read);
            if (unread > 0 && !covered.contains(state.key()))
            {
                lag.put(state.key(), unread);
            }
        }
        return lag;
    }

    private OptionPositions positions(final Log log)
    {
        return new OptionPositions(options, log, clock, warn);
    }

    private List<RecordingState> states(final Log log)
    {
        listed = log.states();
        return listed;
    }

    /** Return the recordings of the stream, and start its recording if the options require it. */
    private List<RecordingState> followed(final Log log)
    {
        final List<RecordingState> states = states(log);
        final Object run = log.run();
        if (!run.equals(prepared))
        {
            final boolean isLeftOut = "never".equals(options.record()) && !states.isEmpty(); // it can be read
            if (!isLeftOut && states.stream().noneMatch(RecordingState::isActive) && !log.isRecorded())
            {
                log.startRecording(options, !states.isEmpty());
            }
            prepared = run;
        }
        return states;
    }

    /** Return an offset with the stream of this query, which was checked. */
    private QueryOffset ofStream(final Log log, final QueryOffset given)
    {
        final QueryOffset offset = given.ofStream(stream);
        if (isSettled() && offset.payload() != null && !RAW.equals(offset.payload()))
        {
            throw new DataFormatError(
                "the checkpoint is of " + offset.payload() + " rows of " + stream.label() + ", and this query began " +
                "with the columns of " + RAW + " ones",
                "Set payload=" + offset.payload() + ", with columns by .schema(...) while the stream is empty, or use " +
                "a new checkpointLocation.");
        }
        final Set<String> known = offset.archives();
        if (!known.isEmpty() && Collections.disjoint(known, log.archives()))
        {
            throw new OptionError(
                "the checkpoint is of recordings of " + listed(known) + ", but the query reads " +
                listed(log.archives()),
                "Use a new checkpointLocation for this query, or the option 'archive' of the checkpoint. An archive " +
                "with another name is another archive for a checkpoint");
        }
        return offset;
    }

    private static String listed(final Collection<String> archives)
    {
        return "archive " + String.join(" and ", archives.stream().sorted(PythonText::compare).toList());
    }

    /** Whether the query found its payload in the stream, or began without a message. */
    private boolean isSettled()
    {
        return !RAW.equals(options.payload());
    }

    /** Return the end of a batch with the marks of its new positions, and the payload. */
    private QueryOffset completed(final Log log, final QueryOffset end, final List<RecordingState> states)
    {
        final String payload = end.payload() == null && isSettled() ? settle(log, states) : end.payload();
        final Map<String, Mark> marks = new HashMap<>(end.marks());
        for (final RecordingState state : states)
        {
            final long position = end.position(state.key());
            if (!marks.containsKey(state.key()) && position != state.start())
            {
                final Mark mark = Mark.before(log, state, position);
                if (mark != null)
                {
                    marks.put(state.key(), mark);
                }
            }
        }
        return end.completed(marks, payload);
    }

    /** Return the payload of the first message, null without one. */
    private String settle(final Log log, final List<RecordingState> states)
    {
        final Message first = new Inspection(log).firstMessage(states);
        if (first != null && first.isFramed())
        {
            final String payload = first.isArrow() ? "arrow" : "framed";
            throw new DataFormatError(
                stream.label() + " has " + payload + " rows, and this query began with the columns of " + RAW +
                " ones, because it had no message then",
                "Start the query again, with its checkpoint, or set payload=" + payload + ".");
        }
        return first == null ? null : RAW;
    }

    /** Store and return the stopped recordings that the query has read; these may be deleted without a loss. */
    private Map<String, String> findFinished(final QueryOffset start, final List<RecordingState> states)
    {
        for (final RecordingState state : states)
        {
            finished.remove(state.key());
            final Long position = start.position(state.key());
            if (!state.isActive() && position != null && position == state.end())
            {
                finished.put(state.key(), state.fingerprint());
            }
        }
        return finished;
    }

    /** Return where to continue in recordings with other bytes before the offset's position; only with a backlog. */
    private static Map<String, Long> findRewritten(
        final Log log, final QueryOffset offset, final List<RecordingState> states)
    {
        final Inspection inspection = new Inspection(log);
        final Map<String, Long> rewritten = new HashMap<>();
        for (final RecordingState state : states)
        {
            final Long position = offset.position(state.key());
            final Mark mark = offset.marks().get(state.key());
            if (position == null || mark == null || !state.fingerprint().equals(offset.fingerprint(state.key())))
            {
                continue;
            }
            final Finished done = offset.done().get(state.key());
            final boolean hasBacklog = done == null ? state.end() > position : state.end() != done.seen();
            if (hasBacklog && mark.isRewritten(log, state, position))
            {
                rewritten.put(state.key(), inspection.atMessage(state, position));
            }
        }
        return rewritten;
    }

    /** Return the states with ends at most those at the start of the query, without recordings that started later. */
    private static List<RecordingState> cap(final List<RecordingState> states, final Map<String, Long> targets)
    {
        final List<RecordingState> capped = new ArrayList<>();
        for (final RecordingState state : states)
        {
            final Long target = targets.get(state.key());
            if (target != null)
            {
                capped.add(state.end() <= target ? state : state.endingAt(Math.max(state.start(), target)));
            }
        }
        return capped;
    }

    /**
     * Return the unread bytes of each recording with any. The incomplete tail of a finished recording is not a backlog
     * until the recording is extended.
     */
    private static Map<String, Long> backlogs(
        final QueryOffset offset, final Map<String, Long> positions, final List<RecordingState> states)
    {
        final Map<String, Long> backlogs = new HashMap<>();
        for (final RecordingState state : states)
        {
            final long position = positions.get(state.key());
            final Finished done = offset.done().get(state.key());
            final boolean isDone = done != null && done.position() == position && done.seen() == state.end() &&
                done.fingerprint().equals(state.fingerprint());
            if (state.end() > position && !isDone)
            {
                backlogs.put(state.key(), state.end() - position);
            }
        }
        return backlogs;
    }

    /** Whether the options want a batch of a backlog, in bytes. */
    private boolean isDue(final Collection<Long> backlogs)
    {
        final BatchLimits limits = options.limits();
        final long backlog = backlogs.stream().mapToLong(Long::longValue).sum();
        return targets != null || limits.minBytes() == null || backlog >= limits.minBytes() ||
            backlog > 0 && clock.getAsLong() - lastBatchNs >= limits.maxDelayNs();
    }

    /**
     * Return the recordings in which a batch begins elsewhere than its start, without those with a loss that a repeated
     * batch finds again.
     */
    private static Set<String> moved(
        final QueryOffset start, final Losses.Checked checked, final Map<String, Long> begins)
    {
        final Set<String> moved = new HashSet<>();
        begins.forEach((key, at) ->
        {
            final Long known = start.position(key);
            final boolean isMoved = known != null && !checked.lost().contains(key) && !at.equals(known);
            if (isMoved || !at.equals(checked.positions().get(key)))
            {
                moved.add(key);
            }
        });
        return moved;
    }
}

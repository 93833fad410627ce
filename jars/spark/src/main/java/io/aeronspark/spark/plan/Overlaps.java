package io.aeronspark.spark.plan;

import io.aeronspark.spark.error.DataFormatError;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Divides the messages of recordings that overlap, so that a query reads each message once. Two recordings have the same
 * log where they overlap if the bytes at the begin and at the end of the overlap are equal; of an archive without
 * readable files, messages are compared. Not thread-safe.
 */
final class Overlaps
{
    private static final int COMPARED_BYTES = 2048;
    private static final int FRAME_HEADER_LENGTH = 32;

    private final Log log;
    private final Inspection inspection;
    private final Map<Kind, List<RecordingState>> alike = new LinkedHashMap<>();
    private final Map<String, Boolean> known = new HashMap<>();

    /** A range of a batch query, and its recording. */
    record Wanted(Range range, RecordingState state)
    {
    }

    /** The values that recordings of the same log have in common. */
    private record Kind(int streamId, int initialTermId, int termLength)
    {
        static Kind of(final RecordingState state)
        {
            return new Kind(state.streamId(), state.initialTermId(), state.termLength());
        }
    }

    Overlaps(final Log log, final Collection<RecordingState> states)
    {
        this.log = log;
        this.inspection = new Inspection(log);
        for (final RecordingState state : states)
        {
            if (state.end() > state.start())
            {
                alike.computeIfAbsent(Kind.of(state), (kind) -> new ArrayList<>()).add(state);
            }
        }
    }

    /** Whether another recording has the messages from {@code position} to the start of {@code state}. */
    boolean have(final RecordingState state, final long position)
    {
        return of(state).stream().anyMatch((other) -> other.start() <= position);
    }

    /** Return the positions after the messages that the query has read in another recording. */
    Map<String, Long> skip(final Map<String, Long> positions)
    {
        final Map<String, Long> found = new HashMap<>(positions);
        boolean isChanged = true;
        while (isChanged)
        {
            isChanged = false;
            for (final RecordingState state : candidates())
            {
                final long at = found.get(state.key());
                long reached = at;
                if (at < state.end())
                {
                    for (final RecordingState other : of(state))
                    {
                        reached = other.start() <= at ? Math.max(reached, found.get(other.key())) : reached;
                    }
                }
                reached = Math.min(reached, state.end());
                if (reached > at)
                {
                    found.put(state.key(), reached);
                    isChanged = true;
                }
            }
        }
        return found;
    }

    /**
     * Return {@code states} with ends up to which a batch may read them from {@code positions}, those of {@link #skip}:
     * of several recordings at the same position the one that reaches farthest is read, up to the start of another one.
     * The result is only for planning.
     */
    List<RecordingState> shareOut(final Collection<RecordingState> states, final Map<String, Long> positions)
    {
        final Map<String, RecordingState> byKey = new HashMap<>();
        states.forEach((state) -> byKey.put(state.key(), state));
        final Map<String, Long> ends = new HashMap<>();
        for (final RecordingState candidate : candidates())
        {
            final RecordingState state = byKey.get(candidate.key());
            final long at = positions.get(candidate.key());
            if (state == null || at >= state.end())
            {
                continue;
            }
            for (final RecordingState overlapping : of(candidate))
            {
                final RecordingState other = byKey.get(overlapping.key());
                if (other != null && other.start() > at)
                {
                    ends.merge(state.key(), inspection.atMessage(state, other.start()), Math::min);
                }
                else if (other != null && positions.get(other.key()) == at && reachesFarther(other, state))
                {
                    ends.merge(state.key(), at, Math::min);
                }
            }
        }
        final List<RecordingState> shared = new ArrayList<>();
        for (final RecordingState state : states)
        {
            final long end = ends.getOrDefault(state.key(), state.end());
            shared.add(end < state.end() ? state.endingAt(end) : state);
        }
        return shared;
    }

    /** Return the positions of recordings without rows in a batch that keep up with those read in their place. */
    Map<String, Long> waiting(final Map<String, Long> begins, final Map<String, Long> ends)
    {
        final Map<String, Long> waiting = skip(ends);
        waiting.keySet().removeIf((key) -> !ends.get(key).equals(begins.get(key)));
        return waiting;
    }

    /** Return the recordings whose unread messages are all in another one, which comes first. */
    Set<String> covered(final Map<String, Long> positions)
    {
        final Set<String> covered = new HashSet<>();
        for (final RecordingState state : candidates())
        {
            final long at = positions.get(state.key());
            if (at < state.end() &&
                of(state).stream().anyMatch((other) -> other.start() <= at && reachesFarther(other, state)))
            {
                covered.add(state.key());
            }
        }
        return covered;
    }

    /** Return the first positions of a query, so that {@link #skip} skips nothing that one of the positions wants. */
    Map<String, Long> earliestWanted(final Map<String, Long> positions)
    {
        final Map<String, Long> found = new HashMap<>(positions);
        for (final RecordingState state : candidates())
        {
            for (final RecordingState other : of(state))
            {
                final long wanted = positions.get(other.key());
                if (wanted < found.get(state.key()) && wanted < inspection.lastMessage(other))
                {
                    found.put(state.key(), Math.max(state.start(), wanted));
                }
            }
        }
        return found;
    }

    /** The recordings with the stream id, initial term id and term length of another one. */
    private List<RecordingState> candidates()
    {
        return alike.values().stream().filter((states) -> states.size() > 1).flatMap(List::stream).toList();
    }

    /** Return the other recordings with the same log where they overlap {@code state}. */
    private List<RecordingState> of(final RecordingState state)
    {
        final List<RecordingState> found = new ArrayList<>();
        for (final RecordingState other : alike.getOrDefault(Kind.of(state), List.of()))
        {
            if (!other.key().equals(state.key()) && haveSameLog(state, other))
            {
                found.add(other);
            }
        }
        return found;
    }

    private static boolean reachesFarther(final RecordingState one, final RecordingState other)
    {
        final int byEnd = Long.compare(one.end(), other.end());
        return byEnd > 0 || byEnd == 0 && RecordingKey.ORDER.compare(one.key(), other.key()) > 0;
    }

    /** Return the ranges without the messages that another of them has; in the order of {@code wanted}. */
    List<Range> eachOnce(final Collection<Wanted> wanted)
    {
        final Map<String, Wanted> kept = new LinkedHashMap<>();
        final List<Wanted> ordered = new ArrayList<>(wanted);
        ordered.sort(Comparator
            .comparingLong((Wanted one) -> one.range.start())
            .thenComparing((Wanted one) -> one.range.end(), Comparator.reverseOrder())
            .thenComparing((Wanted one) -> one.range.key(), RecordingKey.ORDER));
        for (final Wanted one : ordered)
        {
            final long start = firstMissing(one, kept);
            if (start < one.range.end())
            {
                kept.put(one.range.key(), new Wanted(one.range.part(start, one.range.end()), one.state));
            }
        }
        final List<Range> ranges = new ArrayList<>();
        for (final Wanted one : wanted)
        {
            final Wanted found = kept.get(one.range.key());
            if (found != null)
            {
                ranges.add(found.range);
            }
        }
        return ranges;
    }

    private long firstMissing(final Wanted one, final Map<String, Wanted> kept)
    {
        final List<Range> others = new ArrayList<>();
        for (final RecordingState other : of(one.state))
        {
            if (kept.containsKey(other.key()))
            {
                others.add(kept.get(other.key()).range);
            }
        }
        long start = one.range.start();
        while (true)
        {
            long reached = start;
            for (final Range other : others)
            {
                if (other.start() <= start && start < other.end())
                {
                    reached = Math.max(reached, other.end());
                }
            }
            if (reached == start)
            {
                return start;
            }
            start = reached;
        }
    }

    /**
     * Whether two recordings overlap, and have the same log there.
     *
     * @throws DataFormatError if they have the same log at the begin of the overlap only.
     */
    private boolean haveSameLog(final RecordingState one, final RecordingState other)
    {
        final long start = Math.max(one.start(), other.start());
        final long end = Math.min(one.end(), other.end());
        if (start >= end)
        {
            return false;
        }
        final boolean isOrdered = one.key().compareTo(other.key()) < 0;
        final String pair = isOrdered ? one.key() + ' ' + other.key() : other.key() + ' ' + one.key();
        return known.computeIfAbsent(pair, (ignored) -> compare(one, other, start, end));
    }

    private boolean compare(final RecordingState one, final RecordingState other, final long start, final long end)
    {
        // The archive of our node writes the checksum of a message into its frame's header.
        final Boolean isSame = areEqual(one, other, start, (int)Math.min(FRAME_HEADER_LENGTH, end - start));
        if (isSame == null)
        {
            return compareMessages(one, other, start, end);
        }
        // Equal messages of two publications have equal bytes. A recording that was extended has messages of another
        // session than the catalog says, but both recordings were active at the time of these messages.
        if (!isSame || (one.sessionId() != other.sessionId() && !areSimultaneous(one, other)))
        {
            return false;
        }
        final long inTerm = (end - 1) % one.termLength() + 1;
        final int length = (int)Math.min(Math.min(COMPARED_BYTES, end - start), inTerm);
        if (Boolean.FALSE.equals(areEqual(one, other, end - length, length)))
        {
            throw extendedTwice(one, other, start, end);
        }
        return true;
    }

    /** Compare the first message of an overlap, and the messages before its end. */
    private boolean compareMessages(
        final RecordingState one, final RecordingState other, final long start, final long end)
    {
        if (one.sessionId() != other.sessionId() && !areSimultaneous(one, other))
        {
            return false;
        }
        final Boolean isSame = areMessagesEqual(one, other, start, Math.min(end, start + COMPARED_BYTES), 1);
        if (isSame == null) // No complete message is there.
        {
            return one.sessionId() == other.sessionId();
        }
        final long tail = Math.max(start, end - COMPARED_BYTES);
        if (isSame && Boolean.FALSE.equals(areMessagesEqual(one, other, tail, end, Integer.MAX_VALUE)))
        {
            throw extendedTwice(one, other, start, end);
        }
        return isSame;
    }

    private Boolean areMessagesEqual(
        final RecordingState one, final RecordingState other, final long begin, final long limit, final int count)
    {
        final List<Message> first = inspection.messagesBetween(one, begin, limit);
        final List<Message> second = inspection.messagesBetween(other, begin, limit);
        if (first.isEmpty() || second.isEmpty())
        {
            return null;
        }
        final long common = Math.max(first.get(0).position(), second.get(0).position());
        return from(first, common, count).equals(from(second, common, count));
    }

    private static List<Message> from(final List<Message> messages, final long position, final int count)
    {
        return messages.stream().filter((message) -> message.position() >= position).limit(count).toList();
    }

    private Boolean areEqual(final RecordingState one, final RecordingState other, final long at, final int length)
    {
        final byte[] first = log.recordedBytes(one, at, length);
        final byte[] second = log.recordedBytes(other, at, length);
        return first == null || second == null ? null : Arrays.equals(first, second);
    }

    private static boolean areSimultaneous(final RecordingState one, final RecordingState other)
    {
        return other.startTimestamp() <= one.stopTimestamp() && one.startTimestamp() <= other.stopTimestamp();
    }

    private static DataFormatError extendedTwice(
        final RecordingState one, final RecordingState other, final long start, final long end)
    {
        return new DataFormatError(
            "recordings " + one.key() + " and " + other.key() + " have the same messages from position " + start +
            ", but other ones before position " + end + ": each was extended by another publication",
            "Delete one of them ('aeron-spark recordings delete'), or read them with two queries and the option " +
            "'sessionIds'.");
    }
}

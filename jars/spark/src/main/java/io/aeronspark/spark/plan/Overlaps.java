package io.aeronspark.spark.plan;

import io.aeronspark.spark.error.DataFormatError;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

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
    private final Map<String, Boolean> known = new HashMap<>();

    /** A range of a batch query, and its recording. */
    record Wanted(Range range, RecordingState state)
    {
    }

    Overlaps(final Log log)
    {
        this.log = log;
        this.inspection = new Inspection(log);
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
            final long start = firstMissing(one, kept.values());
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

    private long firstMissing(final Wanted one, final Collection<Wanted> kept)
    {
        final List<Range> others = new ArrayList<>();
        for (final Wanted other : kept)
        {
            if (haveSameLog(one.state, other.state))
            {
                others.add(other.range);
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
        if (start >= end || one.streamId() != other.streamId() || one.initialTermId() != other.initialTermId() ||
            one.termLength() != other.termLength())
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

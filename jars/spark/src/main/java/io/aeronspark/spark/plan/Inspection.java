package io.aeronspark.spark.plan;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.stream.LongStream;

/** Finds positions of messages in a log. Not thread-safe. */
final class Inspection
{
    /** Of a recording at a time, so that a search does not keep a term in memory. */
    private static final int READ_BYTES = 4 * 1024 * 1024;

    private final Log log;

    Inspection(final Log log)
    {
        this.log = log;
    }

    /** Return the first position at or after {@code position} at which a message begins, or the last one ends. */
    long atMessage(final RecordingState state, final long position)
    {
        if (position <= state.start())
        {
            return state.start();
        }
        final long limit = Math.min(position, state.end());
        final long before = boundary(state, state.start(), limit, Log.UNCOUNTED).position();
        // If the first message ends beyond the limit, the log returned its end.
        return before >= limit ? before : boundary(state, before, before, Log.UNCOUNTED).position();
    }

    /** Return where a damaged part begins that hides whether a message begins at {@code position}, or -1. */
    long damageBefore(final RecordingState state, final long position)
    {
        if (position <= state.start() || position > state.end())
        {
            return BoundaryRule.NONE;
        }
        final long before = boundary(state, state.start(), position, Log.UNCOUNTED).position();
        if (before >= position)
        {
            return BoundaryRule.NONE;
        }
        final Boundary found = boundary(state, before, before, 1);
        // A damaged part has no rows.
        return found.position() > before && found.rows() == 0 ? before : BoundaryRule.NONE;
    }

    /** Return the end of a recording's last complete message. */
    long lastMessage(final RecordingState state)
    {
        return state.end() <= state.start() ?
            state.start() : boundary(state, state.start(), state.end(), Log.UNCOUNTED).position();
    }

    /** Return the first message of the newest recording with messages, or null if nothing is recorded. */
    Message firstMessage(final Collection<RecordingState> states)
    {
        final List<RecordingState> newest = new ArrayList<>(states);
        newest.sort((one, other) ->
        {
            final int byTime = Long.compare(other.startTimestamp(), one.startTimestamp());
            return byTime != 0 ? byTime : other.key().compareTo(one.key());
        });
        for (final RecordingState state : newest)
        {
            final Message found = firstMessage(state);
            if (found != null)
            {
                return found;
            }
        }
        return null;
    }

    /** Return the first message of a recording, or null without one. */
    private Message firstMessage(final RecordingState state)
    {
        long begin = state.start();
        while (true)
        {
            final Boundary next = boundary(state, begin, begin, 1);
            if (next.position() <= begin)
            {
                return null;
            }
            final List<Message> found =
                next.rows() == 0 ? List.of() : log.messages(state, begin, next.position());
            if (!found.isEmpty())
            {
                return found.get(0);
            }
            begin = next.position();
        }
    }

    /** Return the complete messages that begin in {@code [begin, end)}; reads at most one term of frame headers. */
    List<Message> messagesBetween(final RecordingState state, final long begin, final long end)
    {
        final long first = atMessage(state, begin);
        final long limit = Math.max(first, Math.min(end, state.end()));
        final long stop = boundary(state, first, limit, Log.UNCOUNTED).position();
        final List<Message> found = stop > first ? log.messages(state, first, stop) : List.of();
        return found.stream().filter((message) -> message.position() < end).toList();
    }

    /**
     * Return the position of the first message that was published at or after a time, or the end of the last message.
     * The times must not decrease within a recording.
     *
     * @param timeNs since 1970.
     */
    long positionAt(final RecordingState state, final long timeNs, final PublishTime times)
    {
        final long end = lastMessage(state);
        final long[] terms = terms(state, end);
        int low = 0; // The first term with a first message at or after the time is from here on.
        int high = terms.length;
        while (low < high)
        {
            final int middle = (low + high) >>> 1;
            final Message first = firstFrom(state, terms[middle], end);
            final Long time = first == null ? null : times.of(first);
            if (time == null || time >= timeNs)
            {
                high = middle;
            }
            else
            {
                low = middle + 1;
            }
        }
        // The message is in the term before that one, or it is that term's first message.
        long at = terms.length == 0 ? end : terms[Math.max(0, low - 1)];
        while (at < end)
        {
            final long limit = Math.min(at + READ_BYTES, end);
            final long next = log.boundary(state, at, limit, end, Log.UNCOUNTED).position();
            for (final Message message : log.messages(state, at, next))
            {
                final Long time = times.of(message);
                if (time != null && time >= timeNs)
                {
                    return message.position();
                }
            }
            at = next;
        }
        return end;
    }

    private Message firstFrom(final RecordingState state, final long start, final long end)
    {
        final long stop = log.boundary(state, start, start, end, Log.UNCOUNTED).position();
        final List<Message> found = stop > start ? log.messages(state, start, stop) : List.of();
        return found.isEmpty() ? null : found.get(0);
    }

    /** Positions at which the recording's terms begin; the first one is its start. */
    private static long[] terms(final RecordingState state, final long end)
    {
        if (end <= state.start())
        {
            return new long[0];
        }
        final long term = state.termLength();
        final long second = state.start() - state.start() % term + term;
        final long count = second >= end ? 1 : 2 + (end - 1 - second) / term;
        return LongStream.range(0, count).map((index) -> index == 0 ? state.start() : second + (index - 1) * term)
            .toArray();
    }

    private Boundary boundary(final RecordingState state, final long start, final long limit, final long maxRows)
    {
        return log.boundary(state, start, limit, state.end(), maxRows);
    }
}

package io.aeronspark.spark.plan;

import java.util.List;

/** Finds positions of messages in a log. Not thread-safe. */
final class Inspection
{
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

    /** Return the first message of a recording, or null without one. */
    Message firstMessage(final RecordingState state)
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

    private Boundary boundary(final RecordingState state, final long start, final long limit, final long maxRows)
    {
        return log.boundary(state, start, limit, state.end(), maxRows);
    }
}

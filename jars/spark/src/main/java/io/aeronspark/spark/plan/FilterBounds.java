package io.aeronspark.spark.plan;

import java.util.Set;

/**
 * Bounds that follow from a query's filters; each can be null.
 *
 * @param start      first position at which a wanted message can begin.
 * @param end        position before which each wanted message begins.
 * @param sessions   wanted Aeron session ids.
 * @param recordings wanted recording ids.
 */
public record FilterBounds(Long start, Long end, Set<Integer> sessions, Set<Long> recordings)
{
    /** No bounds. */
    public static final FilterBounds NONE = new FilterBounds(null, null, null, null);

    boolean include(final RecordingState state)
    {
        return (sessions == null || sessions.contains(state.sessionId())) &&
            (recordings == null || recordings.contains(RecordingKey.id(state.key())));
    }
}

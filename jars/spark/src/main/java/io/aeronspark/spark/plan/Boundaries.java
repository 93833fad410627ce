package io.aeronspark.spark.plan;

/** Finds the ends of messages in a log. */
@FunctionalInterface
public interface Boundaries
{
    /** For {@code maxRows}: rows are not counted. */
    long UNCOUNTED = -1;

    /**
     * Return the last end of a message up to {@code limit} with at most {@code maxRows} messages since {@code start}.
     * If the first message ends beyond the limit, return its end, or {@code start} if it is not complete by
     * {@code end}.
     *
     * @param start   the end of a message; {@code start <= limit <= end}.
     * @param maxRows or {@link #UNCOUNTED}.
     */
    Boundary boundary(RecordingState state, long start, long limit, long end, long maxRows);
}

package io.aeronspark.spark.plan;

/**
 * The state of one recording at one time. Positions and lengths are in bytes, times in milliseconds since 1970 by the
 * archive's clock.
 *
 * @param key            of the recording.
 * @param fingerprint    that distinguishes it from another recording with the same key.
 * @param start          first available position, after purges.
 * @param end            recorded position, or the stop position; it can be inside a message.
 * @param isActive       whether it is still being recorded.
 * @param startTimestamp of the recording.
 * @param stopTimestamp  of a stopped recording, else {@link Long#MAX_VALUE}.
 */
public record RecordingState(
    String key,
    String fingerprint,
    long start,
    long end,
    boolean isActive,
    int termLength,
    int initialTermId,
    int mtu,
    int streamId,
    int sessionId,
    String channel,
    long startTimestamp,
    long stopTimestamp)
{
    /**
     * Return this state with an earlier end, only for planning. It is active, so that the planner does not regard the
     * recording as finished there.
     */
    RecordingState endingAt(final long position)
    {
        return new RecordingState(
            key, fingerprint, start, position, true, termLength, initialTermId, mtu, streamId, sessionId, channel,
            startTimestamp, stopTimestamp);
    }
}

package io.aeronspark.spark.plan;

import java.io.Serializable;

/**
 * A task's range of one recording: the messages that <em>begin</em> in {@code [start, end)}.
 *
 * @param key         of the recording.
 * @param fingerprint of the recording.
 * @param start       position of a message.
 * @param end         position of a message, or the end of the last one.
 * @param batchEnd    the end of the whole batch in this recording, of which this can be a part.
 * @param mark        of {@code batchEnd}, or null.
 */
public record Range(
    String key, String fingerprint, long start, long end, long batchEnd, int termLength, Mark mark)
    implements Serializable
{
    /** Return the range of a recording between two positions, without a mark. */
    static Range of(final RecordingState state, final long start, final long end)
    {
        return new Range(state.key(), state.fingerprint(), start, end, end, state.termLength(), null);
    }

    /** Name of the recording's archive. */
    public String archive()
    {
        return RecordingKey.archive(key);
    }

    /** Bytes of the log in this range. */
    public long length()
    {
        return end - start;
    }

    /** Whether the recording has other bytes before the batch's end than when it was planned, as far as is known. */
    public boolean isRewritten(final Log log, final RecordingState state)
    {
        return mark != null && mark.isRewritten(log, state, batchEnd);
    }

    /** Return the part between two positions, of the same batch. */
    Range part(final long from, final long to)
    {
        return new Range(key, fingerprint, from, to, batchEnd, termLength, mark);
    }

    /** Return the range between two positions, at the second of which the batch ends. */
    Range bounded(final long from, final long to)
    {
        return new Range(key, fingerprint, from, to, to, termLength, null);
    }

    /** Return the same range with a mark. */
    Range marked(final Mark found)
    {
        return new Range(key, fingerprint, start, end, batchEnd, termLength, found);
    }
}

package io.aeronspark.spark.plan;

import java.util.List;

/** The recordings of one Aeron stream. Its calls can wait for an archive. */
public interface Log extends RecordedBytes
{
    /** For {@code maxRows}: rows are not counted. */
    long UNCOUNTED = -1;

    /** Names of the archives in keys. */
    List<String> archives();

    /** Return all recordings of the stream with their current ends. */
    List<RecordingState> states();

    /** Return a recording now, or null if it does not exist. */
    RecordingState find(String key);

    /** Throw OptionError, which names similar streams, if the stream has no recording and no archive records it. */
    void checkRecorded(List<RecordingState> states);

    /**
     * Return the last end of a message up to {@code limit} with at most {@code maxRows} messages since {@code start}.
     * If the first message ends beyond the limit, return its end, or {@code start} if it is not complete by
     * {@code end}.
     *
     * @param start   the end of a message; {@code start <= limit <= end}.
     * @param maxRows or {@link #UNCOUNTED}.
     */
    Boundary boundary(RecordingState state, long start, long limit, long end, long maxRows);

    /** Return the complete messages of {@code [begin, end)}, both ends of messages. */
    List<Message> messages(RecordingState state, long begin, long end);
}

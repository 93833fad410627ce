package io.aeronspark.spark.plan;

import io.aeronspark.spark.option.ReadOptions;
import java.util.List;

/** The recordings of one Aeron stream. Its calls can wait for an archive. */
public interface Log extends Boundaries, RecordedBytes
{
    /** Names of the archives in keys. */
    List<String> archives();

    /** Return all recordings of the stream with their current ends. */
    List<RecordingState> states();

    /** Return a recording now, or null if it does not exist. */
    RecordingState find(String key);

    /** Throw OptionError, which names similar streams, if the stream has no recording and no archive records it. */
    void checkRecorded(List<RecordingState> states);

    /** Return a value that differs after a restart of an archive, which forgets the requests to record. */
    Object run();

    /** Whether an archive records the stream, with or without a publisher. */
    boolean isRecorded();

    /**
     * Start the recording of the stream in the first archive.
     *
     * @throws io.aeronspark.spark.error.OptionError if option 'record' forbids that, or the archive cannot receive it.
     */
    void startRecording(ReadOptions options, boolean wasRecorded);

    /** Return the complete messages of {@code [begin, end)}, both ends of messages. */
    List<Message> messages(RecordingState state, long begin, long end);
}

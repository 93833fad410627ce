package io.aeronspark.spark.plan;

import io.aeronspark.spark.option.ReadOptions;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** A log whose recordings have messages of one frame each, by position; the reserved value is the position. */
final class MemoryLog implements Log
{
    static final int TERM = 64 * 1024;
    static final int FRAME = 64;

    private final Map<String, RecordingState> states = new TreeMap<>();
    private final Map<String, Integer> contents = new TreeMap<>();
    private final List<String> requests = new ArrayList<>();
    private boolean hasFiles = true;
    private boolean isRecorded;
    private int run;

    /** Add a recording of {@code [start, end)} whose bytes are those of other recordings with the same content. */
    RecordingState add(final String key, final long start, final long end, final int session, final int content)
    {
        final RecordingState state = new RecordingState(
            key, "f", start, end, false, TERM, 0, 1408, 1001, session, "aeron:ipc", 0, Long.MAX_VALUE);
        states.put(key, state);
        contents.put(key, content);
        return state;
    }

    MemoryLog withoutFiles()
    {
        hasFiles = false;
        return this;
    }

    /** Restart the archive, which forgets the requests to record. */
    void restart()
    {
        run++;
    }

    void setRecorded()
    {
        isRecorded = true;
    }

    /** The values of option {@code record} in the requests to record. */
    List<String> requests()
    {
        return requests;
    }

    @Override
    public List<String> archives()
    {
        return states.keySet().stream().map(RecordingKey::archive).distinct().toList();
    }

    @Override
    public List<RecordingState> states()
    {
        return List.copyOf(states.values());
    }

    @Override
    public RecordingState find(final String key)
    {
        return states.get(key);
    }

    @Override
    public void checkRecorded(final List<RecordingState> found)
    {
    }

    @Override
    public Object run()
    {
        return run;
    }

    @Override
    public boolean isRecorded()
    {
        return isRecorded;
    }

    @Override
    public void startRecording(final ReadOptions options, final boolean wasRecorded)
    {
        requests.add(options.record());
    }

    @Override
    public Boundary boundary(
        final RecordingState state, final long start, final long limit, final long end, final long maxRows)
    {
        final long most = maxRows == UNCOUNTED ? limit : Math.min(limit, start + maxRows * FRAME);
        final long last = Math.max(most - most % FRAME, start);
        final long position = last > start ? last : Math.min(start + FRAME, end);
        return new Boundary(position, maxRows == UNCOUNTED ? 0 : (position - start) / FRAME);
    }

    @Override
    public byte[] recordedBytes(final RecordingState state, final long position, final int length)
    {
        return hasFiles ? new byte[]{contents.get(state.key()).byteValue(), (byte)position, (byte)length} : null;
    }

    @Override
    public List<Message> messages(final RecordingState state, final long begin, final long end)
    {
        final List<Message> found = new ArrayList<>();
        for (long at = begin; at < end; at += FRAME)
        {
            found.add(new Message(at, new byte[]{contents.get(state.key()).byteValue()}, at));
        }
        return found;
    }
}

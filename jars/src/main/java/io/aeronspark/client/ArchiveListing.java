package io.aeronspark.client;

import io.aeron.archive.client.RecordingDescriptorConsumer;
import io.aeron.archive.client.RecordingSubscriptionDescriptorConsumer;
import java.util.ArrayList;
import java.util.List;

/**
 * Collects the recordings, or the recording subscriptions, that an archive lists. docs/threads.md says why this is not
 * in Python.
 * <p>
 * Filled on the thread that lists; read by that thread after the list has ended.
 */
public final class ArchiveListing implements RecordingDescriptorConsumer, RecordingSubscriptionDescriptorConsumer
{
    private final List<long[]> numbers = new ArrayList<>();
    private final List<String[]> texts = new ArrayList<>();

    @Override
    public void onRecordingDescriptor(
        final long controlSessionId,
        final long correlationId,
        final long recordingId,
        final long startTimestamp,
        final long stopTimestamp,
        final long startPosition,
        final long stopPosition,
        final int initialTermId,
        final int segmentFileLength,
        final int termBufferLength,
        final int mtuLength,
        final int sessionId,
        final int streamId,
        final String strippedChannel,
        final String originalChannel,
        final String sourceIdentity)
    {
        numbers.add(new long[]{
            recordingId, startTimestamp, stopTimestamp, startPosition, stopPosition, initialTermId, segmentFileLength,
            termBufferLength, mtuLength, sessionId, streamId});
        texts.add(new String[]{strippedChannel, originalChannel, sourceIdentity});
    }

    @Override
    public void onSubscriptionDescriptor(
        final long controlSessionId,
        final long correlationId,
        final long subscriptionId,
        final int streamId,
        final String strippedChannel)
    {
        numbers.add(new long[]{subscriptionId, streamId});
        texts.add(new String[]{strippedChannel});
    }

    /** Number of entries. */
    public int size()
    {
        return numbers.size();
    }

    /** The numbers of an entry, in the order in which the archive's client passes them, from its id on. */
    public long[] numbers(final int index)
    {
        return numbers.get(index);
    }

    /** The texts of an entry, in the order in which the archive's client passes them. */
    public String[] texts(final int index)
    {
        return texts.get(index);
    }
}

package io.aeronspark.guard;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.agrona.collections.Hashing;

/**
 * The streams and sessions that a receiving endpoint has subscriptions to, and the number of its images. The driver's
 * conductor thread changes them and the receiver thread reads them.
 */
final class SubscribedStreams
{
    private final Set<Integer> streams = ConcurrentHashMap.newKeySet();
    private final Set<Long> sessions = ConcurrentHashMap.newKeySet();
    private final AtomicInteger images = new AtomicInteger();

    void addStream(final int streamId)
    {
        streams.add(streamId);
    }

    void removeStream(final int streamId)
    {
        streams.remove(streamId);
    }

    void addSession(final int streamId, final int sessionId)
    {
        sessions.add(Hashing.compoundKey(streamId, sessionId));
    }

    void removeSession(final int streamId, final int sessionId)
    {
        sessions.remove(Hashing.compoundKey(streamId, sessionId));
    }

    void addImage()
    {
        images.incrementAndGet();
    }

    void removeImage()
    {
        images.decrementAndGet();
    }

    /** Whether a subscription takes this session: one to the whole stream, or one to the session. */
    boolean contains(final int streamId, final int sessionId)
    {
        return streams.contains(streamId) || sessions.contains(Hashing.compoundKey(streamId, sessionId));
    }

    /** Images that the driver has not freed, also those whose session has ended. */
    int imageCount()
    {
        return images.get();
    }
}

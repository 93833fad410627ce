package io.aeronspark.guard;

import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;
import org.agrona.collections.Hashing;
import org.agrona.collections.Long2LongCounterMap;
import org.agrona.collections.Long2ObjectHashMap;

/**
 * The sessions that a receiving endpoint has admitted: the address and the geometry of their first SETUP frame, and how
 * many there are of each source. Times are nanoseconds of one clock. Used by the receiver thread alone.
 */
final class SessionTable
{
    private static final long SWEEP_INTERVAL_NS = TimeUnit.MILLISECONDS.toNanos(250);
    /** Most bytes of answers that a session can have earned: bytes of long ago do not pay for a burst now. */
    private static final int MAX_ANSWER_BUDGET = 64 * 1024;

    /** An admitted session. */
    static final class Session
    {
        final InetSocketAddress source;
        final int initialTermId;
        final int termLength;
        final int mtu;
        /** The packet that admitted the session, until its image has it; null if a SETUP admitted it. */
        byte[] firstPacket;
        private int answerBudget;
        private long lastReceivedNs;

        /** With the fields of the first SETUP; lengths in bytes. */
        Session(
            final InetSocketAddress source,
            final int initialTermId,
            final int termLength,
            final int mtu,
            final long nowNs)
        {
            this.source = source;
            this.initialTermId = initialTermId;
            this.termLength = termLength;
            this.mtu = mtu;
            lastReceivedNs = nowNs;
        }

        /** The session's source has sent {@code bytes}. */
        void onReceived(final int bytes, final long nowNs)
        {
            lastReceivedNs = nowNs;
            answerBudget = Math.min(MAX_ANSWER_BUDGET, answerBudget + bytes);
        }

        /** Whether an answer of {@code bytes} may leave; they are subtracted from the bytes received. */
        boolean tryAnswer(final int bytes)
        {
            if (answerBudget < bytes)
            {
                return false;
            }
            answerBudget -= bytes;
            return true;
        }
    }

    private final Long2ObjectHashMap<Session> sessions = new Long2ObjectHashMap<>();
    private final Long2LongCounterMap countBySource = new Long2LongCounterMap(0);
    private final long idleNs;
    private long sweptNs;

    /** A session ends after {@code idleNs} without a frame, like the driver's image of it. */
    SessionTable(final long idleNs, final long nowNs)
    {
        this.idleNs = idleNs;
        sweptNs = nowNs;
    }

    /** The session, or null if it was not admitted or has ended. */
    Session find(final int sessionId, final int streamId, final long nowNs)
    {
        if (nowNs - sweptNs >= SWEEP_INTERVAL_NS)
        {
            sweep(nowNs);
        }
        return sessions.get(Hashing.compoundKey(sessionId, streamId));
    }

    void add(final int sessionId, final int streamId, final Session session)
    {
        sessions.put(Hashing.compoundKey(sessionId, streamId), session);
        countBySource.incrementAndGet(NetworkFilter.sourceOf(session.source.getAddress()));
    }

    int count()
    {
        return sessions.size();
    }

    /** Sessions of a source as {@link NetworkFilter#sourceOf} defines it. */
    long countOf(final long source)
    {
        return countBySource.get(source);
    }

    private void sweep(final long nowNs)
    {
        sweptNs = nowNs;
        final Long2ObjectHashMap<Session>.ValueIterator remaining = sessions.values().iterator();
        while (remaining.hasNext())
        {
            final Session session = remaining.next();
            if (nowNs - session.lastReceivedNs > idleNs)
            {
                remaining.remove();
                countBySource.decrementAndGet(NetworkFilter.sourceOf(session.source.getAddress()));
            }
        }
    }
}

package io.aeronspark.guard;

import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;
import org.agrona.collections.Hashing;
import org.agrona.collections.Long2LongCounterMap;
import org.agrona.collections.Long2ObjectHashMap;

/** The sessions an endpoint has let in: whose they are, what their first SETUP said, and how many there are of each source. */
final class SessionTable
{
    private static final long SWEEP_NS = TimeUnit.MILLISECONDS.toNanos(250);
    /** More answers than these bytes are never owed: what a source has sent long ago does not pay for a burst now. */
    private static final int MOST_CREDIT = 64 * 1024;

    /** One session. */
    static final class Session
    {
        final InetSocketAddress source;
        final int initialTermId;
        final int termLength;
        final int mtu;
        private int credit;
        private long lastNs;

        Session(final InetSocketAddress source, final int initialTermId, final int termLength, final int mtu, final long nowNs)
        {
            this.source = source;
            this.initialTermId = initialTermId;
            this.termLength = termLength;
            this.mtu = mtu;
            lastNs = nowNs;
        }

        /** The owner sent this many bytes. */
        void received(final int bytes, final long nowNs)
        {
            lastNs = nowNs;
            credit = Math.min(MOST_CREDIT, credit + bytes);
        }

        /** Take what an answer weighs from what was received; false where it weighs more. */
        boolean pays(final int bytes)
        {
            if (credit < bytes)
            {
                return false;
            }
            credit -= bytes;
            return true;
        }
    }

    private final Long2ObjectHashMap<Session> sessions = new Long2ObjectHashMap<>();
    private final Long2LongCounterMap perSource = new Long2LongCounterMap(0);
    private final long idleNs;
    private long sweptNs;

    /** A session that has been silent for {@code idleNs} gives its place back, as its image does. */
    SessionTable(final long idleNs, final long nowNs)
    {
        this.idleNs = idleNs;
        sweptNs = nowNs;
    }

    /** The session, or null. */
    Session find(final int sessionId, final int streamId, final long nowNs)
    {
        if (nowNs - sweptNs >= SWEEP_NS)
        {
            sweep(nowNs);
        }
        return sessions.get(Hashing.compoundKey(sessionId, streamId));
    }

    void add(final int sessionId, final int streamId, final Session session)
    {
        sessions.put(Hashing.compoundKey(sessionId, streamId), session);
        perSource.incrementAndGet(NetworkFilter.sourceOf(session.source.getAddress()));
    }

    int count()
    {
        return sessions.size();
    }

    long countOf(final long source)
    {
        return perSource.get(source);
    }

    private void sweep(final long nowNs)
    {
        sweptNs = nowNs;
        final Long2ObjectHashMap<Session>.ValueIterator remaining = sessions.values().iterator();
        while (remaining.hasNext())
        {
            final Session session = remaining.next();
            if (nowNs - session.lastNs > idleNs)
            {
                remaining.remove();
                perSource.decrementAndGet(NetworkFilter.sourceOf(session.source.getAddress()));
            }
        }
    }
}

package io.aeronspark.guard;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeronspark.guard.SessionTable.Session;
import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class SessionTableTest
{
    private static final long IDLE = TimeUnit.SECONDS.toNanos(10);
    private final SessionTable sessions = new SessionTable(IDLE, 0);
    private final InetSocketAddress source = new InetSocketAddress("10.0.0.1", 1000);

    private Session session(final long nowNs)
    {
        return new Session(source, 7, 65536, 1408, nowNs);
    }

    @Test
    void findsASessionByItsIdAndStream()
    {
        sessions.add(1, 1001, session(0));
        assertNotNull(sessions.find(1, 1001, 0));
        assertNull(sessions.find(1, 1002, 0));
        assertNull(sessions.find(2, 1001, 0));
        sessions.add(-1, 1001, session(0));
        assertEquals(2, sessions.count());
        assertEquals(2, sessions.countOf(NetworkFilter.sourceOf(source.getAddress())));
    }

    @Test
    void removesASilentSession()
    {
        sessions.add(1, 1001, session(0));
        sessions.add(2, 1001, session(0));
        sessions.find(2, 1001, IDLE / 2).onReceived(100, IDLE / 2);
        assertNull(sessions.find(1, 1001, IDLE + 1));
        assertNotNull(sessions.find(2, 1001, IDLE + 1));
        assertEquals(1, sessions.countOf(NetworkFilter.sourceOf(source.getAddress())));
    }

    @Test
    void permitsAnswersOnlyUpToTheBytesReceived()
    {
        final Session session = session(0);
        assertFalse(session.tryAnswer(1));
        session.onReceived(100, 0);
        assertTrue(session.tryAnswer(60));
        assertFalse(session.tryAnswer(60));
        assertTrue(session.tryAnswer(40));
        session.onReceived(Integer.MAX_VALUE / 2, 0);
        session.onReceived(100, 0);
        assertTrue(session.tryAnswer(64 * 1024));
        assertFalse(session.tryAnswer(1)); // only the last 64 KiB count
    }
}

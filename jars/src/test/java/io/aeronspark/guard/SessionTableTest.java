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
    void aSessionIsOneOfItsStream()
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
    void aSilentSessionGivesItsPlaceBack()
    {
        sessions.add(1, 1001, session(0));
        sessions.add(2, 1001, session(0));
        sessions.find(2, 1001, IDLE / 2).received(100, IDLE / 2);
        assertNull(sessions.find(1, 1001, IDLE + 1));
        assertNotNull(sessions.find(2, 1001, IDLE + 1));
        assertEquals(1, sessions.countOf(NetworkFilter.sourceOf(source.getAddress())));
    }

    @Test
    void anAnswerIsPaidByWhatCame()
    {
        final Session session = session(0);
        assertFalse(session.pays(1));
        session.received(100, 0);
        assertTrue(session.pays(60));
        assertFalse(session.pays(60));
        assertTrue(session.pays(40));
        session.received(Integer.MAX_VALUE / 2, 0);
        session.received(100, 0);
        assertTrue(session.pays(64 * 1024));
        assertFalse(session.pays(1)); // what came long ago is not saved up
    }
}

package io.aeronspark.guard;

import static io.aeronspark.guard.GuardFixture.LOCAL_PORT;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import java.util.concurrent.TimeUnit;
import org.agrona.concurrent.status.AtomicCounter;
import org.junit.jupiter.api.Test;

class CookieRegistryTest
{
    private static final int STREAM = 1001;
    private static final long REFRESH_NS = TimeUnit.MILLISECONDS.toNanos(250);

    private final GuardFixture guard = new GuardFixture("receiving");
    private final CookieRegistry registry = guard.cookies();
    private long nowNs;

    private HelloCookies find()
    {
        return registry.find(LOCAL_PORT, STREAM, nowNs);
    }

    @Test
    void findsTheSecretOfAPortAndStreamUntilItsCounterIsClosed()
    {
        final AtomicCounter counter = guard.registerSecret(1, STREAM, (byte)7);
        assertNotNull(find());
        assertNull(registry.find(LOCAL_PORT, STREAM + 1, nowNs));
        assertNull(registry.find(LOCAL_PORT + 1, STREAM, nowNs));
        counter.close();
        nowNs += REFRESH_NS;
        assertNull(find());
    }

    @Test
    void readsTheCountersAtTheFirstUseAndThenInIntervalsOrOnRequest()
    {
        assertNull(find());
        guard.registerSecret(1, STREAM, (byte)7);
        assertNull(find());
        registry.refreshAtNextUse();
        assertNotNull(find());
        nowNs += REFRESH_NS;
        assertNull(registry.find(LOCAL_PORT, STREAM + 1, nowNs));
        guard.registerSecret(1, STREAM + 1, (byte)8);
        nowNs += REFRESH_NS;
        assertNotNull(registry.find(LOCAL_PORT, STREAM + 1, nowNs));
    }

    @Test
    void keepsTheSpentCookiesOfASecretThatStaysRegistered()
    {
        final AtomicCounter counter = guard.registerSecret(1, STREAM, (byte)7);
        final HelloCookies first = find();
        nowNs += REFRESH_NS;
        assertSame(first, find());
        counter.close();
        guard.registerSecret(1, STREAM, (byte)8);
        nowNs += REFRESH_NS;
        assertNotSame(first, find());
    }

    @Test
    void ignoresAnotherLayout()
    {
        guard.registerSecret(2, STREAM, (byte)7);
        assertNull(find());
    }
}

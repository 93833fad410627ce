package io.aeronspark.guard;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.aeronspark.guard.OwnerRegistry.Ownership;
import java.net.InetSocketAddress;
import org.agrona.concurrent.status.AtomicCounter;
import org.junit.jupiter.api.Test;

class OwnerRegistryTest
{
    private static final long MS = 1_000_000;
    private static final int STREAM = 1001;
    private final GuardFixture guard = new GuardFixture("receiving");
    private final OwnerRegistry owners = guard.owners(OwnerRegistry.RECEIVED);

    private AtomicCounter register(
        final int layout, final int direction, final int session, final String address, final int port)
    {
        return guard.register(layout, direction, session, STREAM, address, port);
    }

    private Ownership find(final int session, final String address, final int port, final long nowNs)
    {
        final InetSocketAddress source = new InetSocketAddress(address, port);
        return owners.find(GuardFixture.LOCAL_PORT, session, STREAM, source, nowNs, false);
    }

    @Test
    void findsAnOwnerFromItsRegistrationToTheEndOfIt()
    {
        assertEquals(Ownership.NONE, find(5, "10.0.0.1", 1, 0));
        final AtomicCounter registered = register(1, OwnerRegistry.RECEIVED, 5, "10.0.0.1", 0);
        assertEquals(Ownership.NONE, find(5, "10.0.0.1", 1, MS / 2)); // the counters are not read for each packet
        assertEquals(Ownership.OWNER, find(5, "10.0.0.1", 1, MS));
        assertEquals(Ownership.OWNER, find(5, "10.0.0.1", 2, MS));
        assertEquals(Ownership.OTHER, find(5, "10.0.0.2", 1, MS));
        assertEquals(Ownership.NONE, find(6, "10.0.0.1", 1, 2 * MS));
        registered.close();
        assertEquals(Ownership.NONE, find(5, "10.0.0.1", 1, 20 * MS));
    }

    @Test
    void comparesARegisteredPort()
    {
        register(1, OwnerRegistry.RECEIVED, 5, "10.0.0.1", 7);
        assertEquals(Ownership.OTHER, find(5, "10.0.0.1", 8, 0));
        assertEquals(Ownership.OWNER, find(5, "10.0.0.1", 7, 0));
    }

    @Test
    void findsSeveralOwnersOfASessionAndIpv6Addresses()
    {
        register(1, OwnerRegistry.RECEIVED, 5, "10.0.0.1", 0);
        register(1, OwnerRegistry.RECEIVED, 5, "2001:db8::1", 0);
        assertEquals(Ownership.OWNER, find(5, "10.0.0.1", 1, 0));
        assertEquals(Ownership.OWNER, find(5, "2001:db8::1", 1, 0));
        assertEquals(Ownership.OTHER, find(5, "2001:db8::2", 1, 0));
    }

    @Test
    void ignoresRegistrationsOfTheOtherDirectionAndOfAnotherLayout()
    {
        register(1, OwnerRegistry.PUBLISHED, 5, "10.0.0.1", 0);
        register(2, OwnerRegistry.RECEIVED, 5, "10.0.0.1", 0);
        assertEquals(Ownership.NONE, find(5, "10.0.0.1", 1, 0));
    }

    @Test
    void readsTheCountersAgainAtTheNextUseOnRequest()
    {
        find(5, "10.0.0.1", 1, 0);
        register(1, OwnerRegistry.RECEIVED, 5, "10.0.0.1", 0);
        owners.refreshAtNextUse(MS / 2);
        assertEquals(Ownership.OWNER, find(5, "10.0.0.1", 1, MS / 2));
    }
}

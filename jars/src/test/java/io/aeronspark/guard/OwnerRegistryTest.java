package io.aeronspark.guard;

import static java.nio.ByteOrder.LITTLE_ENDIAN;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.aeron.driver.MediaDriver;
import io.aeronspark.guard.OwnerRegistry.Claim;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.AtomicCounter;
import org.agrona.concurrent.status.CountersManager;
import org.junit.jupiter.api.Test;

class OwnerRegistryTest
{
    private static final long MS = 1_000_000;
    private static final int PORT = 20121;
    private final UnsafeBuffer metaData = new UnsafeBuffer(ByteBuffer.allocateDirect(64 * 1024));
    private final UnsafeBuffer values = new UnsafeBuffer(ByteBuffer.allocateDirect(16 * 1024));
    private final CountersManager counters = new CountersManager(metaData, values, StandardCharsets.US_ASCII);
    private final OwnerRegistry owners =
        new OwnerRegistry(OwnerRegistry.RECEIVED, new MediaDriver.Context().countersMetaDataBuffer(metaData).countersValuesBuffer(values), 0);

    private AtomicCounter register(final int layout, final int direction, final int session, final String address, final int port)
        throws UnknownHostException
    {
        final byte[] bytes = InetAddress.getByName(address).getAddress();
        return counters.newCounter("an owner", OwnerRegistry.COUNTER_TYPE_ID, key ->
        {
            key.putInt(0, layout, LITTLE_ENDIAN);
            key.putInt(4, direction, LITTLE_ENDIAN);
            key.putInt(8, PORT, LITTLE_ENDIAN);
            key.putInt(12, session, LITTLE_ENDIAN);
            key.putInt(16, 1001, LITTLE_ENDIAN);
            key.putInt(20, port, LITTLE_ENDIAN);
            if (4 == bytes.length)
            {
                key.putShort(34, (short)0xFFFF);
            }
            key.putBytes(40 - bytes.length, bytes);
        });
    }

    private Claim claim(final int session, final String address, final int port, final long nowNs)
    {
        return owners.claim(PORT, session, 1001, new InetSocketAddress(address, port), nowNs, false);
    }

    @Test
    void anAddressOwnsASessionFromItsRegistrationToItsEnd() throws UnknownHostException
    {
        assertEquals(Claim.NONE, claim(5, "10.0.0.1", 1, 0));
        final AtomicCounter registered = register(1, OwnerRegistry.RECEIVED, 5, "10.0.0.1", 0);
        assertEquals(Claim.NONE, claim(5, "10.0.0.1", 1, MS / 2)); // not looked for again for every packet
        assertEquals(Claim.OWNER, claim(5, "10.0.0.1", 1, MS));
        assertEquals(Claim.OWNER, claim(5, "10.0.0.1", 2, MS));
        assertEquals(Claim.FOREIGN, claim(5, "10.0.0.2", 1, MS));
        assertEquals(Claim.NONE, claim(6, "10.0.0.1", 1, 2 * MS));
        registered.close();
        assertEquals(Claim.NONE, claim(5, "10.0.0.1", 1, 20 * MS));
    }

    @Test
    void aRegisteredPortIsHeldTo() throws UnknownHostException
    {
        register(1, OwnerRegistry.RECEIVED, 5, "10.0.0.1", 7);
        assertEquals(Claim.FOREIGN, claim(5, "10.0.0.1", 8, 0));
        assertEquals(Claim.OWNER, claim(5, "10.0.0.1", 7, 0));
    }

    @Test
    void severalMayOwnASessionAndIpv6Too() throws UnknownHostException
    {
        register(1, OwnerRegistry.RECEIVED, 5, "10.0.0.1", 0);
        register(1, OwnerRegistry.RECEIVED, 5, "2001:db8::1", 0);
        assertEquals(Claim.OWNER, claim(5, "10.0.0.1", 1, 0));
        assertEquals(Claim.OWNER, claim(5, "2001:db8::1", 1, 0));
        assertEquals(Claim.FOREIGN, claim(5, "2001:db8::2", 1, 0));
    }

    @Test
    void registrationsOfTheOtherDirectionAndOfAnotherLayoutAreNotOurs() throws UnknownHostException
    {
        register(1, OwnerRegistry.PUBLISHED, 5, "10.0.0.1", 0);
        register(2, OwnerRegistry.RECEIVED, 5, "10.0.0.1", 0);
        assertEquals(Claim.NONE, claim(5, "10.0.0.1", 1, 0));
    }

    @Test
    void whatWasRenewedIsKnownAtTheNextClaim() throws UnknownHostException
    {
        claim(5, "10.0.0.1", 1, 0);
        register(1, OwnerRegistry.RECEIVED, 5, "10.0.0.1", 0);
        owners.renew(MS / 2);
        assertEquals(Claim.OWNER, claim(5, "10.0.0.1", 1, MS / 2));
    }
}

package io.aeronspark.guard;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeron.ChannelUri;
import io.aeronspark.guard.DropCounters.Reason;
import java.net.InetSocketAddress;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class ReceiverTableTest
{
    private static final long SECOND = TimeUnit.SECONDS.toNanos(1);
    private final InetSocketAddress first = new InetSocketAddress("10.0.0.1", 1);
    private final InetSocketAddress second = new InetSocketAddress("10.0.0.2", 1);

    private static ReceiverTable peers(final String parameters, final boolean isOnePeerEach)
    {
        final ChannelUri channel = ChannelUri.parse("aeron:udp?endpoint=127.0.0.1:1|guard-burst=1000|" + parameters);
        return new ReceiverTable(GuardRules.of(channel, new Properties()), isOnePeerEach, 0);
    }

    @Test
    void receiversAreKnownUntilTheyHaveBeenSilent()
    {
        final ReceiverTable peers = peers("guard-rate=1000", false);
        assertFalse(peers.isKnown(1, 1001, first, 0));
        assertNull(peers.introduce(1, 1001, first, 99, 0));
        assertTrue(peers.isKnown(2, 1002, first, 0));
        assertNull(peers.introduce(1, 1001, first, 99, 4 * SECOND));
        assertTrue(peers.isKnown(1, 1001, first, 8 * SECOND));
        assertFalse(peers.isKnown(1, 1001, first, 10 * SECOND));
    }

    @Test
    void thereAreSoManyReceiversAndSoManyOfOneSource()
    {
        final ReceiverTable peers = peers("guard-rate=1000|guard-destinations=3|guard-destinations-per-source=2", false);
        assertNull(peers.introduce(1, 1001, first, 1, 0));
        assertNull(peers.introduce(1, 1001, first, 2, 0));
        assertEquals(Reason.SOURCE, peers.introduce(1, 1001, first, 3, 0));
        assertNull(peers.introduce(1, 1001, second, 1, 0));
        assertEquals(Reason.TOTAL, peers.introduce(1, 1001, second, 2, 0));
        assertNull(peers.introduce(1, 1001, first, 1, 0)); // a known one stays
    }

    @Test
    void aPublicationWithOnePeerKeepsToItUntilItIsGone()
    {
        final ReceiverTable peers = peers("guard-rate=1000", true);
        assertNull(peers.introduce(1, 1001, first, 1, 0));
        assertEquals(Reason.FOREIGN, peers.introduce(1, 1001, second, 1, 0));
        assertFalse(peers.isKnown(1, 1001, second, 0));
        assertNull(peers.introduce(2, 1001, second, 1, 0));
        peers.forget(1, 1001);
        assertNull(peers.introduce(1, 1001, second, 2, 0));
    }

    @Test
    void introductionsHaveARate()
    {
        final ReceiverTable peers = peers("guard-rate=1|guard-total-rate=20", false);
        assertNull(peers.introduce(1, 1001, first, 1, 0));
        assertEquals(Reason.RATE, peers.introduce(1, 1001, first, 2, 0));
        assertNull(peers.introduce(1, 1001, first, 2, SECOND));
    }
}

package io.aeronspark.guard;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class ReceiverTableTest
{
    private static final long SECOND = TimeUnit.SECONDS.toNanos(1);
    private final InetSocketAddress first = new InetSocketAddress("10.0.0.1", 1);
    private final InetSocketAddress second = new InetSocketAddress("10.0.0.2", 1);

    private static ReceiverTable receivers(final String parameters, final boolean isResponse)
    {
        return new ReceiverTable(GuardFixture.rules("guard-burst=1000|" + parameters), isResponse, 0);
    }

    @Test
    void knowsAReceiverUntilItWasSilentForFiveSeconds()
    {
        final ReceiverTable receivers = receivers("guard-rate=1000", false);
        assertFalse(receivers.isKnown(1, 1001, first, 0));
        assertNull(receivers.introduce(1, 1001, first, 99, 0));
        assertTrue(receivers.isKnown(2, 1002, first, 0));
        assertNull(receivers.introduce(1, 1001, first, 99, 4 * SECOND));
        assertTrue(receivers.isKnown(1, 1001, first, 8 * SECOND));
        assertFalse(receivers.isKnown(1, 1001, first, 10 * SECOND));
    }

    @Test
    void limitsReceiversInAllAndOfOneSource()
    {
        final ReceiverTable receivers =
            receivers("guard-rate=1000|guard-destinations=3|guard-destinations-per-source=2", false);
        assertNull(receivers.introduce(1, 1001, first, 1, 0));
        assertNull(receivers.introduce(1, 1001, first, 2, 0));
        assertEquals(DropReason.SOURCE, receivers.introduce(1, 1001, first, 3, 0));
        assertNull(receivers.introduce(1, 1001, second, 1, 0));
        assertEquals(DropReason.TOTAL, receivers.introduce(1, 1001, second, 2, 0));
        assertNull(receivers.introduce(1, 1001, first, 1, 0)); // a known receiver is kept
    }

    @Test
    void keepsTheFirstReceiverOfAResponsePublication()
    {
        final ReceiverTable receivers = receivers("guard-rate=1000", true);
        assertNull(receivers.introduce(1, 1001, first, 1, 0));
        assertEquals(DropReason.FOREIGN, receivers.introduce(1, 1001, second, 1, 0));
        assertFalse(receivers.isKnown(1, 1001, second, 0));
        assertNull(receivers.introduce(2, 1001, second, 1, 0));
        receivers.forgetPublication(1, 1001);
        assertNull(receivers.introduce(1, 1001, second, 2, 0));
    }

    @Test
    void limitsIntroductionsPerSecond()
    {
        final ReceiverTable receivers = receivers("guard-rate=1|guard-total-rate=20", false);
        assertNull(receivers.introduce(1, 1001, first, 1, 0));
        assertEquals(DropReason.RATE, receivers.introduce(1, 1001, first, 2, 0));
        assertNull(receivers.introduce(1, 1001, first, 2, SECOND));
    }
}

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

    /** Handle a status message without the set-up flag, of a receiver that may not replace another one. */
    private static DropReason introduce(
        final ReceiverTable receivers,
        final int sessionId,
        final int streamId,
        final InetSocketAddress address,
        final long receiverId,
        final long nowNs)
    {
        return receivers.introduce(sessionId, streamId, address, receiverId, false, false, nowNs);
    }

    @Test
    void knowsAReceiverUntilItWasSilentForFiveSeconds()
    {
        final ReceiverTable receivers = receivers("guard-rate=1000", false);
        assertFalse(receivers.isKnown(1, 1001, first, 0));
        assertNull(introduce(receivers, 1, 1001, first, 99, 0));
        assertTrue(receivers.isKnown(2, 1002, first, 0));
        assertNull(introduce(receivers, 1, 1001, first, 99, 4 * SECOND));
        assertTrue(receivers.isKnown(1, 1001, first, 8 * SECOND));
        assertFalse(receivers.isKnown(1, 1001, first, 10 * SECOND));
    }

    @Test
    void limitsReceiversInAllAndOfOneSource()
    {
        final ReceiverTable receivers =
            receivers("guard-rate=1000|guard-destinations=3|guard-destinations-per-source=2", false);
        assertNull(introduce(receivers, 1, 1001, first, 1, 0));
        assertNull(introduce(receivers, 1, 1001, first, 2, 0));
        assertEquals(DropReason.SOURCE, introduce(receivers, 1, 1001, first, 3, 0));
        assertNull(introduce(receivers, 1, 1001, second, 1, 0));
        assertEquals(DropReason.TOTAL, introduce(receivers, 1, 1001, second, 2, 0));
        assertNull(introduce(receivers, 1, 1001, first, 1, 0)); // a known receiver is kept
    }

    @Test
    void keepsTheFirstReceiverOfAResponsePublication()
    {
        final ReceiverTable receivers = receivers("guard-rate=1000", true);
        assertNull(introduce(receivers, 1, 1001, first, 1, 0));
        assertEquals(DropReason.FOREIGN, introduce(receivers, 1, 1001, second, 1, 0));
        assertFalse(receivers.isKnown(1, 1001, second, 0));
        assertNull(introduce(receivers, 2, 1001, second, 1, 0));
        receivers.forgetPublication(1, 1001);
        assertNull(introduce(receivers, 1, 1001, second, 2, 0));
    }

    @Test
    void movesAResponsePublicationToAnotherAddressOfItsOwnerWhileTheFirstOneHasNoImage()
    {
        final ReceiverTable receivers = receivers("guard-rate=1000", true);
        assertNull(receivers.introduce(1, 1001, first, 1, true, true, 0));
        assertEquals(DropReason.FOREIGN, receivers.introduce(1, 1001, second, 1, true, false, 0));
        assertNull(receivers.introduce(1, 1001, second, 1, true, true, 0));
        assertTrue(receivers.isKnown(1, 1001, second, 0));
        assertFalse(receivers.isKnown(1, 1001, first, 0));
        assertNull(receivers.introduce(1, 1001, second, 1, false, true, 0)); // it has an image
        assertEquals(DropReason.FOREIGN, receivers.introduce(1, 1001, first, 1, true, true, 0));
    }

    @Test
    void movesAResponsePublicationAwayFromAReceiverWithAnImageAfterASecondOfSilence()
    {
        final ReceiverTable receivers = receivers("guard-rate=1000", true);
        assertNull(receivers.introduce(1, 1001, first, 1, false, true, 0));
        assertEquals(DropReason.FOREIGN, receivers.introduce(1, 1001, second, 1, true, true, SECOND));
        assertNull(receivers.introduce(1, 1001, first, 1, false, true, SECOND));
        assertEquals(DropReason.FOREIGN, receivers.introduce(1, 1001, second, 1, true, true, 2 * SECOND));
        assertEquals(DropReason.FOREIGN, receivers.introduce(1, 1001, second, 1, true, false, 2 * SECOND + 1));
        assertNull(receivers.introduce(1, 1001, second, 1, true, true, 2 * SECOND + 1));
    }

    @Test
    void limitsIntroductionsPerSecond()
    {
        final ReceiverTable receivers = receivers("guard-rate=1|guard-total-rate=20", false);
        assertNull(introduce(receivers, 1, 1001, first, 1, 0));
        assertEquals(DropReason.RATE, introduce(receivers, 1, 1001, first, 2, 0));
        assertNull(introduce(receivers, 1, 1001, first, 2, SECOND));
    }
}

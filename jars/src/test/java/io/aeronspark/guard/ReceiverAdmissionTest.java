package io.aeronspark.guard;

import static io.aeronspark.guard.GuardFixture.LOCAL_PORT;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeron.protocol.StatusMessageFlyweight;
import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.Test;

class ReceiverAdmissionTest
{
    private static final int SESSION = 7;
    private static final int STREAM = 1001;
    private static final int OWNED_STREAM = 2002;

    private final InetSocketAddress receiver = new InetSocketAddress("10.0.0.1", 1000);
    private final InetSocketAddress reopened = new InetSocketAddress("10.0.0.1", 1001);
    private final InetSocketAddress other = new InetSocketAddress("10.0.0.2", 1000);
    private final GuardFixture guard = new GuardFixture("sending");
    private ReceiverAdmission admission = admission("guard-streams=" + STREAM, false);
    private boolean isConnected;
    private long nowNs;

    private ReceiverAdmission admission(final String parameters, final boolean isResponse)
    {
        final GuardRules rules = GuardFixture.rules(parameters);
        final ReceiverAdmission admission = new ReceiverAdmission(
            rules, guard.drops, guard.owners(OwnerRegistry.PUBLISHED), new ReceiverTable(rules, isResponse, 0));
        admission.addPublication(SESSION, STREAM, 0);
        return admission;
    }

    private static StatusMessageFlyweight message(final int sessionId, final int streamId)
    {
        final byte[] bytes = new byte[StatusMessageFlyweight.HEADER_LENGTH + Long.BYTES];
        final StatusMessageFlyweight message = new StatusMessageFlyweight(new UnsafeBuffer(bytes));
        message.sessionId(sessionId).streamId(streamId).receiverWindowLength(4096).receiverId(1);
        return message;
    }

    private static StatusMessageFlyweight setUpRequest()
    {
        final StatusMessageFlyweight request = message(SESSION, STREAM);
        request.flags(StatusMessageFlyweight.SEND_SETUP_FLAG);
        return request;
    }

    /** The receiver's host owns the publication. */
    private void guardResponsePublicationWithAnOwner()
    {
        admission = admission("guard-joining=false", true);
        guard.register(OwnerRegistry.PUBLISHED, SESSION, STREAM, "10.0.0.1");
        admission.addPublication(SESSION, STREAM, nowNs);
    }

    private boolean status(final StatusMessageFlyweight message, final InetSocketAddress from)
    {
        return admission.permitsStatusMessage(message, from, LOCAL_PORT, isConnected, nowNs);
    }

    private boolean frame(final int sessionId, final InetSocketAddress from)
    {
        return admission.permitsFrame(sessionId, STREAM, from, LOCAL_PORT, isConnected, nowNs);
    }

    @Test
    void takesOtherFramesOnlyFromReceiversThatHaveIntroducedThemselves()
    {
        assertFalse(frame(SESSION, receiver));
        assertTrue(status(message(SESSION, STREAM), receiver));
        assertTrue(frame(SESSION, receiver));
        assertFalse(frame(SESSION, other));
        assertEquals("{foreign=2}", guard.drops().toString());
    }

    @Test
    void rejectsFramesForSessionsThatAreNotPublishedHere()
    {
        assertFalse(status(message(SESSION + 1, STREAM), receiver));
        assertFalse(frame(SESSION + 1, receiver));
        admission.removePublication(SESSION, STREAM);
        assertFalse(status(message(SESSION, STREAM), receiver));
        assertEquals("{unwanted=3}", guard.drops().toString());
    }

    @Test
    void rejectsNegativeWindowsAndOffsets()
    {
        final StatusMessageFlyweight message = message(SESSION, STREAM);
        message.receiverWindowLength(-1);
        assertFalse(status(message, receiver));
        message.receiverWindowLength(0).consumptionTermOffset(-1);
        assertFalse(status(message, receiver));
        assertEquals("{invalid=2}", guard.drops().toString());
    }

    @Test
    void takesFramesOnlyFromTheOwnerOfASessionOnAStreamThatIsNotOpen()
    {
        admission.addPublication(SESSION, OWNED_STREAM, nowNs);
        assertFalse(status(message(SESSION, OWNED_STREAM), receiver));
        guard.register(OwnerRegistry.PUBLISHED, SESSION, OWNED_STREAM, "10.0.0.1");
        nowNs += TimeUnit.MILLISECONDS.toNanos(1);
        assertTrue(status(message(SESSION, OWNED_STREAM), receiver));
        assertFalse(status(message(SESSION, OWNED_STREAM), other));
        assertEquals("{unowned=1, foreign=1}", guard.drops().toString());
    }

    @Test
    void knowsAnOwnerThatWasRegisteredJustBeforeThePublication()
    {
        assertTrue(status(message(SESSION, STREAM), receiver)); // reads the counters
        guard.register(OwnerRegistry.PUBLISHED, SESSION, OWNED_STREAM, "10.0.0.1");
        admission.addPublication(SESSION, OWNED_STREAM, nowNs);
        assertTrue(status(message(SESSION, OWNED_STREAM), receiver));
    }

    @Test
    void leavesAddressesToTheKernelIfTheSocketIsConnected()
    {
        isConnected = true;
        admission.addPublication(SESSION, OWNED_STREAM, nowNs);
        assertTrue(status(message(SESSION, OWNED_STREAM), receiver));
        assertTrue(frame(SESSION, other));
        assertEquals("{}", guard.drops().toString());
    }

    @Test
    void keepsTheFirstReceiverOfAResponsePublication()
    {
        admission = admission("guard-joining=false", true);
        assertTrue(status(message(SESSION, STREAM), receiver));
        assertFalse(status(message(SESSION, STREAM), other));
        assertFalse(frame(SESSION, other));
        assertEquals("{foreign=2}", guard.drops().toString());
    }

    @Test
    void movesAResponsePublicationAtTheRequestOfItsOwnerOnly()
    {
        guardResponsePublicationWithAnOwner();
        assertTrue(status(setUpRequest(), receiver));
        assertTrue(status(setUpRequest(), reopened));
        assertFalse(status(message(SESSION, STREAM), receiver));
        assertFalse(status(setUpRequest(), other));
        assertEquals("{foreign=2}", guard.drops().toString());
    }

    @Test
    void keepsTheFirstReceiverOfAResponsePublicationWithoutAnOwner()
    {
        admission = admission("guard-joining=false", true);
        assertTrue(status(setUpRequest(), receiver));
        assertFalse(status(setUpRequest(), reopened));
        assertEquals("{foreign=1}", guard.drops().toString());
    }

    @Test
    void movesNoResponsePublicationByAMessageWithoutTheSetUpFlag()
    {
        guardResponsePublicationWithAnOwner();
        assertTrue(status(setUpRequest(), receiver));
        assertFalse(status(message(SESSION, STREAM), reopened));
        assertEquals("{foreign=1}", guard.drops().toString());
    }

    @Test
    void takesRequestsForAllPublicationsOnlyIfTheRulesPermitJoining()
    {
        assertFalse(status(message(0, 0), receiver));
        admission = admission("guard-joining=true|guard-deny=10.0.0.2", false);
        assertTrue(status(message(0, 0), receiver));
        assertFalse(status(message(0, 0), other));
        assertEquals("{network=1, unwanted=1}", guard.drops().toString());
    }
}

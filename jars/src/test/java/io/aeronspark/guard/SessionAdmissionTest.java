package io.aeronspark.guard;

import static io.aeronspark.guard.GuardFixture.LOCAL_PORT;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeron.protocol.DataHeaderFlyweight;
import io.aeron.protocol.HeaderFlyweight;
import io.aeron.protocol.RttMeasurementFlyweight;
import io.aeron.protocol.SetupFlyweight;
import io.aeronspark.driver.HandshakeStream;
import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.Test;

class SessionAdmissionTest
{
    private static final int SESSION = 7;
    private static final int STREAM = 1001;
    private static final int OWNED_STREAM = 2002;
    private static final int TERM_ID = 5;
    private static final int TERM_LENGTH = 64 * 1024;
    private static final int MTU = 1408;
    private static final int SETUP_LENGTH = SetupFlyweight.HEADER_LENGTH;
    private static final int STATUS_MESSAGE_LENGTH = 44;
    private static final int REJECTION_LENGTH = 44 + 40 + 36;
    private static final int WINDOW_LENGTH = 128 * 1024;
    private static final long IDLE_NS = TimeUnit.SECONDS.toNanos(10);

    private final InetSocketAddress source = new InetSocketAddress("10.0.0.1", 1000);
    private final InetSocketAddress other = new InetSocketAddress("10.0.0.2", 1000);
    private final GuardFixture guard = new GuardFixture("receiving");
    private final SubscribedStreams subscribed = new SubscribedStreams();
    private SessionAdmission admission = admission("guard-streams=" + STREAM);
    private long nowNs;

    private SessionAdmission admission(final String parameters)
    {
        subscribed.addStream(STREAM);
        subscribed.addStream(OWNED_STREAM);
        return new SessionAdmission(
            GuardFixture.rules(parameters),
            guard.drops,
            guard.owners(OwnerRegistry.RECEIVED),
            subscribed,
            new AddressProof(guard.cookies()),
            WINDOW_LENGTH,
            IDLE_NS,
            0);
    }

    private static SetupFlyweight setupFrame(
        final int sessionId, final int streamId, final int termLength, final int mtu)
    {
        final SetupFlyweight setup = new SetupFlyweight(new UnsafeBuffer(new byte[SETUP_LENGTH]));
        setup.sessionId(sessionId).streamId(streamId).initialTermId(TERM_ID).activeTermId(TERM_ID).termOffset(0)
            .termLength(termLength).mtuLength(mtu);
        return setup;
    }

    private boolean setup(final SetupFlyweight setup, final InetSocketAddress from)
    {
        return admission.permitsSetup(setup, SETUP_LENGTH, from, LOCAL_PORT, nowNs);
    }

    private boolean setup(final int sessionId, final InetSocketAddress from)
    {
        return setup(setupFrame(sessionId, STREAM, TERM_LENGTH, MTU), from);
    }

    /** A packet with one frame of {@code length} bytes, header included. */
    private static DataHeaderFlyweight packet(final int length, final int termId, final int termOffset)
    {
        final DataHeaderFlyweight header = new DataHeaderFlyweight(new UnsafeBuffer(new byte[length]));
        header.sessionId(SESSION).streamId(STREAM).termId(termId).termOffset(termOffset);
        header.version(HeaderFlyweight.CURRENT_VERSION).headerType(HeaderFlyweight.HDR_TYPE_DATA).frameLength(length);
        return header;
    }

    private boolean data(final DataHeaderFlyweight packet, final InetSocketAddress from)
    {
        return admission.permitsData(packet, packet, packet.capacity(), from, LOCAL_PORT, nowNs);
    }

    private boolean answer(final int length)
    {
        return admission.permitsAnswer(SESSION, STREAM, length, false, nowNs);
    }

    @Test
    void takesDataOnlyFromTheAddressThatSentTheSetup()
    {
        assertFalse(data(packet(64, TERM_ID, 0), source));
        assertTrue(setup(SESSION, source));
        assertTrue(data(packet(64, TERM_ID, 0), source));
        assertFalse(data(packet(64, TERM_ID, 64), other));
        assertFalse(setup(SESSION, other));
        assertEquals("{foreign=2}", guard.drops().toString());
    }

    @Test
    void rejectsDataThatContradictsTheSetup()
    {
        setup(SESSION, source);
        assertTrue(data(packet(MTU, TERM_ID, TERM_LENGTH - MTU), source));
        assertFalse(data(packet(MTU + 32, TERM_ID, 0), source)); // longer than the MTU
        assertFalse(data(packet(64, TERM_ID, TERM_LENGTH - 32), source)); // beyond the term
        assertFalse(data(packet(64, TERM_ID - 1, 0), source)); // before the first term
        assertEquals("{invalid=3}", guard.drops().toString());
    }

    @Test
    void rejectsASetupThatContradictsTheFirst()
    {
        setup(SESSION, source);
        assertTrue(setup(SESSION, source));
        assertFalse(setup(setupFrame(SESSION, STREAM, 2 * TERM_LENGTH, MTU), source));
        assertFalse(setup(setupFrame(SESSION, STREAM, TERM_LENGTH, MTU - 32), source));
        assertEquals("{invalid=2}", guard.drops().toString());
    }

    @Test
    void rejectsGeometryThatIsImpossibleOrNotPermitted()
    {
        assertFalse(setup(setupFrame(SESSION, STREAM, 2 * TERM_LENGTH, MTU), source));
        assertFalse(setup(setupFrame(SESSION, STREAM, TERM_LENGTH, 256), source));
        assertFalse(setup(setupFrame(SESSION, STREAM, TERM_LENGTH, 16 * 1024), source));
        assertFalse(setup(setupFrame(SESSION, STREAM, TERM_LENGTH / 2, MTU), source));
        assertFalse(setup(setupFrame(SESSION, STREAM, TERM_LENGTH - 1, MTU), source));
        assertFalse(setup(setupFrame(SESSION, STREAM, TERM_LENGTH, MTU + 1), source));
        final SetupFlyweight position = setupFrame(SESSION, STREAM, TERM_LENGTH, MTU);
        position.termOffset(TERM_LENGTH + 32);
        assertFalse(setup(position, source));
        position.termOffset(0).activeTermId(TERM_ID - 1);
        assertFalse(setup(position, source));
        assertEquals("{invalid=5, term-length=1, mtu=2}", guard.drops().toString());
    }

    @Test
    void rejectsAnMtuForWhichAeronWouldThrow()
    {
        final String anyMtu = "guard-mtu-min=1|guard-mtu-max=1m|guard-term-length=1g";
        admission = admission(anyMtu);
        assertTrue(setup(setupFrame(SESSION, STREAM, TERM_LENGTH, TERM_LENGTH / 2), source));
        assertFalse(setup(setupFrame(SESSION + 1, STREAM, TERM_LENGTH, TERM_LENGTH / 2 + 32), source));
        assertFalse(setup(setupFrame(SESSION + 1, STREAM, TERM_LENGTH, 0), source));
        assertFalse(setup(setupFrame(SESSION + 1, STREAM, TERM_LENGTH, 32), source)); // a header without data
        assertFalse(setup(setupFrame(SESSION + 1, STREAM, 8 * TERM_LENGTH, 65_536), source)); // longer than a datagram
        assertFalse(setup(setupFrame(SESSION + 1, STREAM, TERM_LENGTH, -32), source));
        assertTrue(setup(setupFrame(SESSION + 1, STREAM, 8 * TERM_LENGTH, 65_504), source));
        assertEquals("{invalid=3, mtu=2}", guard.drops().toString());
    }

    @Test
    void admitsOnlySessionsOfSubscribedStreamsFromPermittedNetworks()
    {
        subscribed.addSession(3003, SESSION);
        assertTrue(setup(setupFrame(SESSION, STREAM, TERM_LENGTH, MTU), source));
        admission = admission("guard-deny=10.0.0.2");
        assertFalse(setup(SESSION, other));
        assertTrue(setup(setupFrame(SESSION, 3003, TERM_LENGTH, MTU), source));
        assertFalse(setup(setupFrame(SESSION + 1, 3003, TERM_LENGTH, MTU), source));
        subscribed.removeStream(STREAM);
        assertFalse(setup(SESSION, source));
        assertEquals("{network=1, unwanted=2}", guard.drops().toString());
    }

    @Test
    void admitsOnlyARegisteredOwnerToAStreamThatIsNotOpen()
    {
        final SetupFlyweight setup = setupFrame(SESSION, OWNED_STREAM, 16 * TERM_LENGTH, MTU);
        assertFalse(setup(setup, source));
        guard.register(OwnerRegistry.RECEIVED, SESSION, OWNED_STREAM, "10.0.0.1");
        nowNs += TimeUnit.MILLISECONDS.toNanos(1);
        assertFalse(setup(setup, other));
        assertTrue(setup(setup, source)); // with the longer term of an owner
        assertEquals("{unowned=1, foreign=1}", guard.drops().toString());
    }

    @Test
    void limitsSessionsInAllAndOfOneSourceAndCountsImages()
    {
        admission = admission("guard-sessions=3|guard-sessions-per-source=2");
        assertTrue(setup(1, source));
        assertTrue(setup(2, source));
        assertFalse(setup(3, source));
        assertTrue(setup(4, other));
        assertFalse(setup(5, other));
        nowNs += 2 * IDLE_NS; // the sessions end, and the driver still has three images
        subscribed.addImage();
        subscribed.addImage();
        subscribed.addImage();
        assertFalse(setup(1, source));
        subscribed.removeImage();
        assertTrue(setup(1, source));
        assertEquals("{total=2, source=1}", guard.drops().toString());
    }

    @Test
    void limitsIntroductionsPerSecond()
    {
        admission = admission("guard-rate=1|guard-burst=2");
        assertTrue(setup(1, source));
        assertTrue(setup(2, source));
        assertFalse(setup(3, source));
        nowNs += TimeUnit.SECONDS.toNanos(1);
        assertTrue(setup(3, source));
        assertEquals("{rate=1}", guard.drops().toString());
    }

    @Test
    void answersASessionWithNoMoreBytesThanItSent()
    {
        assertFalse(answer(1));
        assertTrue(admission.permitsAnswer(SESSION, STREAM, 1, true, nowNs));
        setup(SESSION, source);
        assertTrue(answer(SETUP_LENGTH));
        assertFalse(answer(1));
        data(packet(64, TERM_ID, 0), source);
        assertTrue(answer(64));
        final RttMeasurementFlyweight rtt =
            new RttMeasurementFlyweight(new UnsafeBuffer(new byte[RttMeasurementFlyweight.HEADER_LENGTH]));
        rtt.sessionId(SESSION).streamId(STREAM);
        assertTrue(admission.permitsRttMeasurement(rtt, 40, source, LOCAL_PORT, nowNs));
        assertFalse(answer(41));
        assertTrue(answer(40));
        assertEquals("{budget=3}", guard.drops().toString());
    }

    @Test
    void requestsASetupOnlyForBytesThatPayForTheRequest()
    {
        assertFalse(requestsSetup(STATUS_MESSAGE_LENGTH - 1));
        assertTrue(requestsSetup(1));
        assertFalse(requestsSetup(1));
        setup(SESSION, source);
        assertFalse(requestsSetup(1_000)); // it is admitted
        assertEquals("{budget=2}", guard.drops().toString());
    }

    private boolean requestsSetup(final int length)
    {
        return admission.permitsSetupRequest(SESSION, STREAM, length, source, LOCAL_PORT, nowNs);
    }

    @Test
    void tellsOnlyPermittedSourcesOfUnknownSessionsAndForBytesThatPayForIt()
    {
        admission = admission("guard-deny=10.0.0.2|guard-rate=1|guard-burst=2");
        assertFalse(tells(STREAM, 1_000, source)); // a subscription takes it
        assertFalse(tells(HandshakeStream.ID, 1_000, source)); // its client waits for a server
        assertFalse(tells(STREAM + 1, 1_000, other));
        assertFalse(tells(STREAM + 1, REJECTION_LENGTH - 1, source));
        assertTrue(tells(STREAM + 1, 1, source));
        assertTrue(tells(STREAM + 1, REJECTION_LENGTH, source));
        assertFalse(tells(STREAM + 1, REJECTION_LENGTH, source)); // the rate
        assertTrue(setup(1, source)); // handshakes have a separate one
        nowNs += TimeUnit.SECONDS.toNanos(1);
        assertTrue(tells(STREAM + 1, REJECTION_LENGTH, source));
    }

    private boolean tells(final int streamId, final int length, final InetSocketAddress from)
    {
        return admission.permitsRejection(SESSION, streamId, length, from, nowNs);
    }
}

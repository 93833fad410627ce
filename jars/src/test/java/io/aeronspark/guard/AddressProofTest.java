package io.aeronspark.guard;

import static io.aeronspark.guard.GuardFixture.LOCAL_PORT;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeron.protocol.DataHeaderFlyweight;
import io.aeron.protocol.SetupFlyweight;
import io.aeronspark.driver.HandshakeStream;
import io.aeronspark.guard.AddressProof.Action;
import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.Test;

/** The admission of sessions whose source must return a cookie. */
class AddressProofTest
{
    private static final int SESSION = 7;
    private static final int STREAM = 1001;
    private static final int TERM_ID = 5;
    private static final String RETRY = "aeron-spark/1 RETRY ";

    private final InetSocketAddress source = new InetSocketAddress("10.0.0.1", 1000);
    private final InetSocketAddress other = new InetSocketAddress("10.0.0.2", 1000);
    private final GuardFixture guard = new GuardFixture("receiving");
    private final SubscribedStreams subscribed = new SubscribedStreams();
    private SessionAdmission admission = admission("guard-streams=" + STREAM);
    private long nowNs = TimeUnit.SECONDS.toNanos(100);

    private SessionAdmission admission(final String parameters)
    {
        guard.registerSecret(1, STREAM, (byte)7);
        subscribed.addStream(STREAM);
        subscribed.addStream(STREAM + 1);
        return new SessionAdmission(
            GuardFixture.rules(parameters),
            guard.drops,
            guard.owners(OwnerRegistry.RECEIVED),
            subscribed,
            new AddressProof(guard.cookies()),
            128 * 1024,
            TimeUnit.SECONDS.toNanos(10),
            nowNs);
    }

    private static SetupFlyweight setup(final int termLength, final int mtu, final int offset)
    {
        final SetupFlyweight setup = new SetupFlyweight(new UnsafeBuffer(new byte[SetupFlyweight.HEADER_LENGTH]));
        return setup.sessionId(SESSION).streamId(STREAM).initialTermId(TERM_ID).activeTermId(TERM_ID)
            .termOffset(offset).termLength(termLength).mtuLength(mtu);
    }

    private Action decide(final int sessionId, final UnsafeBuffer message, final InetSocketAddress from)
    {
        return decide(Hellos.packet(message, sessionId, STREAM, TERM_ID), from);
    }

    private Action decide(final DataHeaderFlyweight packet, final InetSocketAddress from)
    {
        assertTrue(needsCookie(packet.sessionId()));
        return admission.decideBeforeAdmission(packet, packet, packet.capacity(), from, LOCAL_PORT, nowNs);
    }

    private boolean needsCookie(final int sessionId)
    {
        return admission.needsCookie(sessionId, STREAM, LOCAL_PORT, nowNs);
    }

    private String cookie(final InetSocketAddress from)
    {
        assertEquals(Action.REJECT, decide(SESSION, Hellos.hello(), from));
        assertTrue(admission.rejection().startsWith(RETRY), admission.rejection());
        return admission.rejection().substring(RETRY.length());
    }

    @Test
    void concernsOnlyStreamsWithARegisteredSecret()
    {
        assertTrue(needsCookie(SESSION));
        assertFalse(admission.needsCookie(SESSION, STREAM + 1, LOCAL_PORT, nowNs));
        assertFalse(admission.needsCookie(SESSION, STREAM, LOCAL_PORT + 1, nowNs));
    }

    @Test
    void admitsASessionByTheHelloThatReturnsItsCookie()
    {
        final String cookie = cookie(source);
        assertTrue(needsCookie(SESSION));
        assertEquals(Action.ADMIT, decide(SESSION + 1, Hellos.helloWith(cookie), source));
        assertFalse(needsCookie(SESSION + 1));
        assertTrue(needsCookie(SESSION));
        final DataHeaderFlyweight again = Hellos.packet(Hellos.helloWith(cookie), SESSION + 1, STREAM, TERM_ID);
        assertTrue(admission.permitsData(again, again, 1152, source, LOCAL_PORT, nowNs));
        assertFalse(admission.permitsData(again, again, 1152, other, LOCAL_PORT, nowNs));
        assertEquals("{no-cookie=1, foreign=1}", guard.drops().toString());
    }

    @Test
    void keepsTheFirstPacketUntilTheImageHasIt()
    {
        final UnsafeBuffer hello = Hellos.helloWith(cookie(source));
        decide(SESSION + 1, hello, source);
        final byte[] kept = admission.firstPacketOf(SESSION + 1, STREAM, nowNs);
        assertArrayEquals(Hellos.packet(hello, SESSION + 1, STREAM, TERM_ID).byteArray(), kept);
        assertEquals(source, admission.sourceOf(SESSION + 1, STREAM, nowNs));
        admission.onFirstPacketTaken(SESSION + 1, STREAM, nowNs);
        assertNull(admission.firstPacketOf(SESSION + 1, STREAM, nowNs));
        assertNull(admission.firstPacketOf(SESSION, STREAM, nowNs));
    }

    @Test
    void acceptsACookieOnceAndOnlyFromItsAddress()
    {
        final String cookie = cookie(source);
        assertEquals(Action.REJECT, decide(SESSION + 1, Hellos.helloWith(cookie), other));
        assertEquals(Action.ADMIT, decide(SESSION + 1, Hellos.helloWith(cookie), source));
        assertEquals(Action.REJECT, decide(SESSION + 2, Hellos.helloWith(cookie), source));
        assertTrue(admission.rejection().startsWith(RETRY));
    }

    @Test
    void doesNotSpendACookieForWhichALimitHasNoRoom()
    {
        admission = admission("guard-sessions-per-source=1");
        final String first = cookie(source);
        final UnsafeBuffer another = Hellos.hello();
        another.putByte(4, (byte)'x'); // the connect key
        decide(SESSION, another, source);
        final UnsafeBuffer withCookie = Hellos.helloWith(admission.rejection().substring(RETRY.length()));
        withCookie.putByte(4, (byte)'x');
        assertEquals(Action.ADMIT, decide(SESSION + 1, Hellos.helloWith(first), source));
        assertEquals(Action.IGNORE, decide(SESSION + 2, withCookie, source));
        nowNs += TimeUnit.SECONDS.toNanos(11); // the first session has ended
        assertEquals(Action.ADMIT, decide(SESSION + 2, withCookie, source));
        assertEquals("{source=1, no-cookie=2}", guard.drops().toString());
    }

    @Test
    void namesTheFaultOfOtherPackets()
    {
        final UnsafeBuffer done = Hellos.hello();
        done.putByte(3, (byte)3);
        final UnsafeBuffer version = Hellos.hello();
        version.putByte(2, (byte)2);
        assertEquals(Action.REJECT, decide(SESSION, new UnsafeBuffer(new byte[1100]), source));
        assertEquals("aeron-spark/1 FAILED message Bad message", admission.rejection());
        assertEquals(Action.REJECT, decide(SESSION, done, source));
        assertEquals("aeron-spark/1 FAILED timeout No pending handshake", admission.rejection());
        assertEquals(Action.REJECT, decide(SESSION, version, source));
        assertEquals("aeron-spark/1 FAILED version This server speaks version 1", admission.rejection());
        final DataHeaderFlyweight later = Hellos.packet(Hellos.hello(), SESSION, STREAM, TERM_ID);
        later.termOffset(1152);
        assertEquals(Action.REJECT, decide(later, source));
        assertEquals("aeron-spark/1 FAILED timeout No pending handshake", admission.rejection());
        final DataHeaderFlyweight fragment = Hellos.packet(Hellos.hello(), SESSION, STREAM, TERM_ID);
        fragment.flags((short)0x80);
        assertEquals(Action.REJECT, decide(fragment, source));
        assertEquals("aeron-spark/1 FAILED message Bad message", admission.rejection());
        assertEquals("{no-cookie=5}", guard.drops().toString());
    }

    @Test
    void asksForAPacketThatWasLostAfterAHeartbeatBehindIt()
    {
        assertEquals(Action.REPEAT, decide(Hellos.heartbeat(SESSION, STREAM, TERM_ID, 1152, (short)0xC0), source));
        assertEquals(Action.IGNORE, decide(Hellos.heartbeat(SESSION, STREAM, TERM_ID, 0, (short)0xC0), source));
        final short endOfStream = 0xE0;
        assertEquals(Action.IGNORE, decide(Hellos.heartbeat(SESSION, STREAM, TERM_ID, 1152, endOfStream), source));
    }

    @Test
    void acknowledgesOnlySetupsOfTheProtocolFromPermittedNetworks()
    {
        final int term = HandshakeStream.TERM_LENGTH;
        assertTrue(admission.permitsSetupBeforeAdmission(setup(term, HandshakeStream.MTU, 0), source));
        assertTrue(admission.permitsSetupBeforeAdmission(setup(term, HandshakeStream.MTU, 1152), source));
        assertFalse(admission.permitsSetupBeforeAdmission(setup(2 * term, HandshakeStream.MTU, 0), source));
        assertFalse(admission.permitsSetupBeforeAdmission(setup(term, 1408, 0), source));
        assertFalse(admission.permitsSetupBeforeAdmission(setup(term, HandshakeStream.MTU, 16), source));
        assertFalse(admission.permitsSetupBeforeAdmission(
            setup(term, HandshakeStream.MTU, 0).activeTermId(TERM_ID + 1), source));
        subscribed.removeStream(STREAM);
        assertFalse(admission.permitsSetupBeforeAdmission(setup(term, HandshakeStream.MTU, 0), source));
        admission = admission("guard-deny=10.0.0.1");
        assertFalse(admission.permitsSetupBeforeAdmission(setup(term, HandshakeStream.MTU, 0), source));
        assertEquals(Action.IGNORE, decide(SESSION, Hellos.hello(), source));
        assertEquals(
            "{invalid=2, network=2, term-length=1, mtu=1, no-cookie=2, unwanted=1}", guard.drops().toString());
    }
}

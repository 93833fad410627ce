package io.aeronspark.guard;

import static io.aeron.logbuffer.FrameDescriptor.FRAME_ALIGNMENT;

import io.aeron.driver.Configuration;
import io.aeron.logbuffer.LogBufferDescriptor;
import io.aeron.protocol.DataHeaderFlyweight;
import io.aeron.protocol.ErrorFlyweight;
import io.aeron.protocol.RttMeasurementFlyweight;
import io.aeron.protocol.SetupFlyweight;
import io.aeron.protocol.StatusMessageFlyweight;
import io.aeronspark.driver.HandshakeStream;
import io.aeronspark.guard.OwnerRegistry.Ownership;
import io.aeronspark.guard.SessionTable.Session;
import java.net.InetSocketAddress;
import org.agrona.DirectBuffer;

/**
 * Decides which frames a receiving endpoint hands to the driver, and which answers it may send. The first SETUP of a
 * session admits the session; where {@link AddressProof} requires a cookie, the first HELLO with a valid cookie does.
 * Later frames pass if they come from the same address and fit the geometry of that SETUP. The answers to a session
 * have no more bytes than its frames. Each refused frame is counted.
 * <p>
 * Used by the receiver thread alone, except {@link SubscribedStreams}. {@code localPort} is the port of the endpoint,
 * for which owners are registered; times are nanoseconds of one clock.
 */
final class SessionAdmission
{
    /** The reason of the error frame for the source of an unknown session. */
    static final String UNKNOWN_SESSION = "aeron-spark/1 FAILED unknown-session";

    private static final int STATUS_MESSAGE_LENGTH = StatusMessageFlyweight.HEADER_LENGTH + Long.BYTES;
    /** Of the status message and the error frame for the source of an unknown session. */
    private static final int REJECTION_LENGTH =
        STATUS_MESSAGE_LENGTH + ErrorFlyweight.HEADER_LENGTH + UNKNOWN_SESSION.length();

    private final GuardRules rules;
    private final DropCounters drops;
    private final OwnerRegistry owners;
    private final SubscribedStreams subscribed;
    private final AddressProof proof;
    private final RateLimiter rates;
    /** Apart from {@link #rates}, so that a flood of frames of unknown sessions delays no handshake. */
    private final RateLimiter rejectionRates;
    private final SessionTable sessions;
    private final int windowLength;

    /**
     * Sessions end after {@code idleNs} without a frame, which is the driver's image liveness time-out.
     *
     * @param windowLength bytes of the endpoint's receiver window.
     */
    SessionAdmission(
        final GuardRules rules,
        final DropCounters drops,
        final OwnerRegistry owners,
        final SubscribedStreams subscribed,
        final AddressProof proof,
        final int windowLength,
        final long idleNs,
        final long nowNs)
    {
        this.rules = rules;
        this.drops = drops;
        this.owners = owners;
        this.subscribed = subscribed;
        this.proof = proof;
        this.windowLength = windowLength;
        rates = new RateLimiter(rules, nowNs);
        rejectionRates = new RateLimiter(rules, nowNs);
        sessions = new SessionTable(idleNs, nowNs);
    }

    /**
     * Whether the session is not admitted yet, and its source must return a cookie first. Then
     * {@link #permitsSetupBeforeAdmission} and {@link #decideBeforeAdmission} decide on its frames.
     */
    boolean needsCookie(final int sessionId, final int streamId, final int localPort, final long nowNs)
    {
        return null == sessions.find(sessionId, streamId, nowNs) && proof.isRequired(localPort, streamId, nowNs);
    }

    /** Whether to acknowledge the SETUP of a session before its admission. The SETUP is counted in any case. */
    boolean permitsSetupBeforeAdmission(final SetupFlyweight setup, final InetSocketAddress source)
    {
        if (!permitsBeforeAdmission(setup.sessionId(), setup.streamId(), source))
        {
            return false;
        }
        final DropReason fault = AddressProof.faultOf(setup);
        drops.count(null == fault ? DropReason.NO_COOKIE : fault);
        return null == fault;
    }

    /** Decide on a data packet of a session before its admission; count the packet unless it admits the session. */
    AddressProof.Action decideBeforeAdmission(
        final DataHeaderFlyweight header,
        final DirectBuffer packet,
        final int length,
        final InetSocketAddress source,
        final int localPort,
        final long nowNs)
    {
        if (!permitsBeforeAdmission(header.sessionId(), header.streamId(), source))
        {
            return AddressProof.Action.IGNORE;
        }
        final AddressProof.Action action = proof.decide(header, packet, source.getAddress(), localPort, nowNs);
        if (AddressProof.Action.ADMIT != action)
        {
            drops.count(DropReason.NO_COOKIE);
            return action;
        }
        if (!hasRoomFor(NetworkFilter.sourceOf(source.getAddress()), nowNs))
        {
            return AddressProof.Action.IGNORE;
        }
        proof.spend();
        final Session session =
            new Session(source, header.termId(), HandshakeStream.TERM_LENGTH, HandshakeStream.MTU, nowNs);
        session.onReceived(length, nowNs);
        session.firstPacket = new byte[length];
        packet.getBytes(0, session.firstPacket);
        sessions.add(header.sessionId(), header.streamId(), session);
        return action;
    }

    /** The reason for the rejection of a session by the last {@link #decideBeforeAdmission}. */
    String rejection()
    {
        return proof.reason();
    }

    /** The packet that admitted a session, until the session's image has taken it; else null. */
    byte[] firstPacketOf(final int sessionId, final int streamId, final long nowNs)
    {
        final Session session = sessions.find(sessionId, streamId, nowNs);
        return null == session ? null : session.firstPacket;
    }

    /** The source of an admitted session. */
    InetSocketAddress sourceOf(final int sessionId, final int streamId, final long nowNs)
    {
        return sessions.find(sessionId, streamId, nowNs).source;
    }

    /** The session's image has taken the packet that admitted the session. */
    void onFirstPacketTaken(final int sessionId, final int streamId, final long nowNs)
    {
        sessions.find(sessionId, streamId, nowNs).firstPacket = null;
    }

    /** Whether to take a SETUP of {@code length} bytes; the first one of a session admits it. */
    boolean permitsSetup(
        final SetupFlyweight setup,
        final int length,
        final InetSocketAddress source,
        final int localPort,
        final long nowNs)
    {
        final Session known = sessions.find(setup.sessionId(), setup.streamId(), nowNs);
        if (null == known)
        {
            return admit(setup, length, source, localPort, nowNs);
        }
        if (!isFrom(known, setup.sessionId(), setup.streamId(), source, localPort, nowNs))
        {
            return false;
        }
        if (known.initialTermId != setup.initialTermId() || known.termLength != setup.termLength() ||
            known.mtu != setup.mtuLength() || !hasPossiblePosition(setup))
        {
            return drops.reject(DropReason.INVALID);
        }
        known.onReceived(length, nowNs);
        return true;
    }

    /**
     * Whether to take a data packet of {@code length} bytes. If its session is not admitted, it is not counted as a
     * drop, and {@link #permitsSetupRequest} decides what to do.
     */
    boolean permitsData(
        final DataHeaderFlyweight header,
        final DirectBuffer packet,
        final int length,
        final InetSocketAddress source,
        final int localPort,
        final long nowNs)
    {
        final Session session = sessions.find(header.sessionId(), header.streamId(), nowNs);
        if (null == session || !isFrom(session, header.sessionId(), header.streamId(), source, localPort, nowNs))
        {
            return false;
        }
        if (length > session.mtu || FrameValidator.dataEnd(packet, length) > session.termLength ||
            header.termId() - session.initialTermId < 0)
        {
            return drops.reject(DropReason.INVALID);
        }
        session.onReceived(length, nowNs);
        return true;
    }

    /** Whether to take an RTT measurement of {@code length} bytes. */
    boolean permitsRttMeasurement(
        final RttMeasurementFlyweight header,
        final int length,
        final InetSocketAddress source,
        final int localPort,
        final long nowNs)
    {
        final Session session = sessions.find(header.sessionId(), header.streamId(), nowNs);
        if (null == session)
        {
            return drops.reject(DropReason.UNWANTED);
        }
        if (!isFrom(session, header.sessionId(), header.streamId(), source, localPort, nowNs))
        {
            return false;
        }
        session.onReceived(length, nowNs);
        return true;
    }

    /**
     * Whether to ask the source of a data packet of {@code length} bytes for a SETUP. It is asked if its session is not
     * admitted: the publication found this driver again after a pause, and sends a SETUP only on request. The packet
     * itself is dropped, since there is no SETUP to compare it with.
     */
    boolean permitsSetupRequest(
        final int sessionId,
        final int streamId,
        final int length,
        final InetSocketAddress source,
        final int localPort,
        final long nowNs)
    {
        if (null != sessions.find(sessionId, streamId, nowNs) ||
            null == introduce(sessionId, streamId, source, localPort, nowNs))
        {
            return false;
        }
        final long sourceKey = NetworkFilter.sourceOf(source.getAddress());
        if (!rates.tryAnswer(sourceKey, length, STATUS_MESSAGE_LENGTH))
        {
            return drops.reject(DropReason.BUDGET);
        }
        return rates.tryIntroduction(sourceKey, nowNs) || drops.reject(DropReason.RATE);
    }

    /**
     * Whether to tell the source of a refused frame of {@code length} bytes that nothing here subscribes to its session:
     * it has found another driver, or another server, than the one for which its publication was opened. A handshake
     * waits for a server.
     */
    boolean permitsRejection(
        final int sessionId, final int streamId, final int length, final InetSocketAddress source, final long nowNs)
    {
        if (HandshakeStream.ID == streamId || subscribed.contains(streamId, sessionId) ||
            !rules.networks().permits(source.getAddress()))
        {
            return false;
        }
        final long sourceKey = NetworkFilter.sourceOf(source.getAddress());
        return rejectionRates.tryAnswer(sourceKey, length, REJECTION_LENGTH) &&
            rejectionRates.tryIntroduction(sourceKey, nowNs);
    }

    /**
     * Whether an answer of {@code length} bytes may leave.
     *
     * @param isToOwnControl whether an answer without a session goes to a control address that a subscription here
     *                       names, so that no sender could choose it: the request for the SETUP of a publication there.
     */
    boolean permitsAnswer(
        final int sessionId, final int streamId, final int length, final boolean isToOwnControl, final long nowNs)
    {
        final Session session = sessions.find(sessionId, streamId, nowNs);
        final boolean isPermitted = null == session ? isToOwnControl : session.tryAnswer(length);
        return isPermitted || drops.reject(DropReason.BUDGET);
    }

    private boolean admit(
        final SetupFlyweight setup,
        final int length,
        final InetSocketAddress source,
        final int localPort,
        final long nowNs)
    {
        final Ownership ownership = introduce(setup.sessionId(), setup.streamId(), source, localPort, nowNs);
        if (null == ownership)
        {
            return false;
        }
        final boolean isOwner = Ownership.OWNER == ownership;
        // The limits of rate and number are for unregistered sources: the program that registers owners limits them.
        if (!hasPermittedGeometry(setup, isOwner) ||
            !isOwner && !hasRoomFor(NetworkFilter.sourceOf(source.getAddress()), nowNs))
        {
            return false;
        }
        final Session session =
            new Session(source, setup.initialTermId(), setup.termLength(), setup.mtuLength(), nowNs);
        session.onReceived(length, nowNs);
        sessions.add(setup.sessionId(), setup.streamId(), session);
        return true;
    }

    /** The checks before an admission that depend on the source and the session alone. */
    private boolean permitsBeforeAdmission(final int sessionId, final int streamId, final InetSocketAddress source)
    {
        if (!rules.networks().permits(source.getAddress()))
        {
            return drops.reject(DropReason.NETWORK);
        }
        return subscribed.contains(streamId, sessionId) || drops.reject(DropReason.UNWANTED);
    }

    /** The checks that depend on the source and the session alone; null if one of them counted a drop. */
    private Ownership introduce(
        final int sessionId,
        final int streamId,
        final InetSocketAddress source,
        final int localPort,
        final long nowNs)
    {
        if (!rules.networks().permits(source.getAddress()))
        {
            drops.count(DropReason.NETWORK);
            return null;
        }
        if (!subscribed.contains(streamId, sessionId))
        {
            drops.count(DropReason.UNWANTED);
            return null;
        }
        final boolean isOpen = rules.isOpen(streamId);
        final Ownership ownership = owners.find(localPort, sessionId, streamId, source, nowNs, isOpen);
        if (Ownership.OTHER == ownership || Ownership.NONE == ownership && !isOpen)
        {
            drops.count(Ownership.OTHER == ownership ? DropReason.FOREIGN : DropReason.UNOWNED);
            return null;
        }
        return ownership;
    }

    private boolean hasPermittedGeometry(final SetupFlyweight setup, final boolean isOwner)
    {
        final int termLength = setup.termLength();
        final int mtu = setup.mtuLength();
        if (termLength > (isOwner ? rules.ownedTermLength() : rules.termLength()))
        {
            return drops.reject(DropReason.TERM_LENGTH);
        }
        if (mtu < rules.mtuMin() || mtu > rules.mtuMax())
        {
            return drops.reject(DropReason.MTU);
        }
        // Aeron checks these too, but throws on its conductor thread, and the session id is unusable from then on.
        return termLength >= LogBufferDescriptor.TERM_MIN_LENGTH && (termLength & termLength - 1) == 0 &&
            isPossibleMtu(mtu, termLength) && hasPossiblePosition(setup) || drops.reject(DropReason.INVALID);
    }

    /** As {@code Configuration} in Aeron: a packet fits into a datagram and into the receiver window. */
    private boolean isPossibleMtu(final int mtu, final int termLength)
    {
        return (mtu & FRAME_ALIGNMENT - 1) == 0 && mtu > DataHeaderFlyweight.HEADER_LENGTH &&
            mtu <= Configuration.MAX_UDP_PAYLOAD_LENGTH &&
            mtu <= Configuration.receiverWindowLength(termLength, windowLength);
    }

    private static boolean hasPossiblePosition(final SetupFlyweight setup)
    {
        final int offset = setup.termOffset();
        return offset >= 0 && offset <= setup.termLength() && (offset & FRAME_ALIGNMENT - 1) == 0 &&
            setup.activeTermId() - setup.initialTermId() >= 0;
    }

    private boolean hasRoomFor(final long source, final long nowNs)
    {
        if (!rates.tryIntroduction(source, nowNs))
        {
            return drops.reject(DropReason.RATE);
        }
        // An image takes memory until the driver frees it, which is after its session has ended here.
        if (Math.max(sessions.count(), subscribed.imageCount()) >= rules.sessions())
        {
            return drops.reject(DropReason.TOTAL);
        }
        return sessions.countOf(source) < rules.sessionsPerSource() || drops.reject(DropReason.SOURCE);
    }

    /** Whether a frame comes from the address of its session, and that is still registered if it has to be. */
    private boolean isFrom(
        final Session session,
        final int sessionId,
        final int streamId,
        final InetSocketAddress source,
        final int localPort,
        final long nowNs)
    {
        if (!session.source.equals(source))
        {
            return drops.reject(DropReason.FOREIGN);
        }
        return rules.isOpen(streamId) ||
            Ownership.OWNER == owners.find(localPort, sessionId, streamId, source, nowNs, false) ||
            drops.reject(DropReason.UNOWNED);
    }
}

package io.aeronspark.guard;

import io.aeron.CommonContext;
import io.aeron.driver.DataPacketDispatcher;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.media.UdpChannel;
import io.aeron.logbuffer.LogBufferDescriptor;
import io.aeron.protocol.DataHeaderFlyweight;
import io.aeron.protocol.RttMeasurementFlyweight;
import io.aeron.protocol.SetupFlyweight;
import io.aeron.protocol.StatusMessageFlyweight;
import io.aeronspark.driver.HandshakeReceiveChannelEndpoint;
import io.aeronspark.guard.DropCounters.Reason;
import io.aeronspark.guard.OwnerRegistry.Claim;
import io.aeronspark.guard.SessionTable.Session;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.agrona.collections.Hashing;
import org.agrona.concurrent.CachedNanoClock;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.AtomicCounter;

/**
 * A receiving endpoint that looks at every frame before the driver spends anything on it. A session is let in by its first SETUP; from then on
 * only the address that sent it is heard, only with what that SETUP said, and it is answered with no more bytes than it sent.
 */
public final class GuardedReceiveChannelEndpoint extends HandshakeReceiveChannelEndpoint
{
    private static final int SM_LENGTH = StatusMessageFlyweight.HEADER_LENGTH + Long.BYTES;
    private static final int ALIGNMENT = 32;

    private final GuardRules rules;
    private final DropCounters drops;
    private final OwnerRegistry owners;
    private final RateLimiter rates;
    private final SessionTable sessions;
    private final CachedNanoClock clock;
    private final UnsafeBuffer answer = new UnsafeBuffer(0, 0);
    // what the conductor's thread tells the receiver's
    private final Set<Integer> streams = ConcurrentHashMap.newKeySet();
    private final Set<Long> streamSessions = ConcurrentHashMap.newKeySet();
    private final AtomicInteger images = new AtomicInteger();
    private int localPort;
    private boolean isEliciting;

    GuardedReceiveChannelEndpoint(
        final UdpChannel udpChannel,
        final DataPacketDispatcher dispatcher,
        final AtomicCounter statusIndicator,
        final MediaDriver.Context context,
        final GuardRules rules,
        final DropCounters drops,
        final OwnerRegistry owners)
    {
        super(udpChannel, dispatcher, statusIndicator, context);
        this.rules = rules;
        this.drops = drops;
        this.owners = owners;
        clock = context.receiverCachedNanoClock();
        rates = new RateLimiter(rules, clock.nanoTime());
        sessions = new SessionTable(context.imageLivenessTimeoutNs(), clock.nanoTime());
    }

    /** {@inheritDoc} */
    @Override
    public boolean isValidFrame(final UnsafeBuffer buffer, final int length)
    {
        return FrameValidator.isReceivable(buffer, length) ? super.isValidFrame(buffer, length) : drops.count(Reason.INVALID);
    }

    /** {@inheritDoc} */
    @Override
    public void onSetupMessage(
        final SetupFlyweight header,
        final UnsafeBuffer buffer,
        final int length,
        final InetSocketAddress source,
        final int transportIndex)
    {
        final long nowNs = clock.nanoTime();
        final Session known = sessions.find(header.sessionId(), header.streamId(), nowNs);
        final Session session = null == known ? admit(header, source, nowNs) : again(known, header, source, nowNs);
        if (null != session)
        {
            session.received(length, nowNs);
            super.onSetupMessage(header, buffer, length, source, transportIndex);
        }
    }

    /** {@inheritDoc} */
    @Override
    public int onDataPacket(
        final DataHeaderFlyweight header,
        final UnsafeBuffer buffer,
        final int length,
        final InetSocketAddress source,
        final int transportIndex)
    {
        final long nowNs = clock.nanoTime();
        final int sessionId = header.sessionId();
        final int streamId = header.streamId();
        final Session session = sessions.find(sessionId, streamId, nowNs);
        if (null == session)
        {
            elicit(sessionId, streamId, length, source, transportIndex, nowNs);
            return 0;
        }
        if (!isOwn(session, sessionId, streamId, source, nowNs) || !fits(session, header, buffer, length))
        {
            return 0;
        }
        session.received(length, nowNs);
        return super.onDataPacket(header, buffer, length, source, transportIndex);
    }

    /** {@inheritDoc} */
    @Override
    public void onRttMeasurement(
        final RttMeasurementFlyweight header,
        final UnsafeBuffer buffer,
        final int length,
        final InetSocketAddress source,
        final int transportIndex)
    {
        final long nowNs = clock.nanoTime();
        final Session session = sessions.find(header.sessionId(), header.streamId(), nowNs);
        if (null == session)
        {
            drops.count(Reason.UNWANTED);
        }
        else if (isOwn(session, header.sessionId(), header.streamId(), source, nowNs))
        {
            session.received(length, nowNs);
            super.onRttMeasurement(header, buffer, length, source, transportIndex);
        }
    }

    /** {@inheritDoc} */
    @Override
    public int sendTo(final ByteBuffer buffer, final InetSocketAddress remoteAddress)
    {
        final int length = buffer.remaining();
        if (isEliciting)
        {
            return super.sendTo(buffer, remoteAddress);
        }
        answer.wrap(buffer, buffer.position(), length);
        final Session session = sessions.find(
            FrameValidator.controlSessionId(answer, 0), FrameValidator.controlStreamId(answer, 0), clock.nanoTime());
        // without a session it is the question after a SETUP, to the control address that our own subscription names
        final boolean isPaid = null == session ? hasExplicitControl() && !isMulticast() : session.pays(length);
        if (!isPaid)
        {
            drops.count(Reason.BUDGET);
            return length; // as if lost on the way: a short send is not what happened
        }
        return super.sendTo(buffer, remoteAddress);
    }

    /** {@inheritDoc} */
    @Override
    public int incRefToStream(final int streamId)
    {
        streams.add(streamId);
        return super.incRefToStream(streamId);
    }

    /** {@inheritDoc} */
    @Override
    public int decRefToStream(final int streamId)
    {
        final int left = super.decRefToStream(streamId);
        if (0 == left)
        {
            streams.remove(streamId);
        }
        return left;
    }

    /** {@inheritDoc} */
    @Override
    public long incRefToStreamAndSession(final int streamId, final int sessionId)
    {
        streamSessions.add(Hashing.compoundKey(streamId, sessionId));
        return super.incRefToStreamAndSession(streamId, sessionId);
    }

    /** {@inheritDoc} */
    @Override
    public long decRefToStreamAndSession(final int streamId, final int sessionId)
    {
        final long left = super.decRefToStreamAndSession(streamId, sessionId);
        if (0 == left)
        {
            streamSessions.remove(Hashing.compoundKey(streamId, sessionId));
        }
        return left;
    }

    /** {@inheritDoc} */
    @Override
    public void incRefImages()
    {
        super.incRefImages();
        images.incrementAndGet();
    }

    /** {@inheritDoc} */
    @Override
    public void decRefImages()
    {
        super.decRefImages();
        images.decrementAndGet();
    }

    private Session admit(final SetupFlyweight header, final InetSocketAddress source, final long nowNs)
    {
        final int sessionId = header.sessionId();
        final int streamId = header.streamId();
        final Claim claim = introduce(sessionId, streamId, source, nowNs);
        if (null == claim || !isSound(header, Claim.OWNER == claim))
        {
            return null;
        }
        // who is registered is limited by who registers
        if (Claim.OWNER != claim && !hasRoom(NetworkFilter.sourceOf(source.getAddress()), nowNs))
        {
            return null;
        }
        final Session session =
            new Session(source, header.initialTermId(), header.termLength(), header.mtuLength(), nowNs);
        sessions.add(sessionId, streamId, session);
        return session;
    }

    private Session again(final Session known, final SetupFlyweight header, final InetSocketAddress source, final long nowNs)
    {
        if (!isOwn(known, header.sessionId(), header.streamId(), source, nowNs))
        {
            return null;
        }
        if (known.initialTermId != header.initialTermId() || known.termLength != header.termLength() ||
            known.mtu != header.mtuLength() || !isPositionSound(header))
        {
            drops.count(Reason.INVALID);
            return null;
        }
        return known;
    }

    /** The checks that cost the stranger a look-up; null where one of them counted a drop. */
    private Claim introduce(final int sessionId, final int streamId, final InetSocketAddress source, final long nowNs)
    {
        if (!rules.networks().permits(source.getAddress()))
        {
            drops.count(Reason.NETWORK);
            return null;
        }
        if (!streams.contains(streamId) && !streamSessions.contains(Hashing.compoundKey(streamId, sessionId)))
        {
            drops.count(Reason.UNWANTED);
            return null;
        }
        final boolean open = rules.isOpen(streamId);
        final Claim claim = owners.claim(localPort(), sessionId, streamId, source, nowNs, open);
        if (Claim.FOREIGN == claim || Claim.NONE == claim && !open)
        {
            drops.count(Claim.FOREIGN == claim ? Reason.FOREIGN : Reason.UNOWNED);
            return null;
        }
        return claim;
    }

    private boolean isSound(final SetupFlyweight header, final boolean isOwned)
    {
        final int termLength = header.termLength();
        final int mtu = header.mtuLength();
        if (termLength > (isOwned ? rules.ownedTermLength() : rules.termLength()))
        {
            return drops.count(Reason.TERM_LENGTH);
        }
        if (mtu < rules.mtuMin() || mtu > rules.mtuMax())
        {
            return drops.count(Reason.MTU);
        }
        // Aeron's own check of these throws on its conductor's thread, and leaves the session id unusable
        return termLength >= LogBufferDescriptor.TERM_MIN_LENGTH && (termLength & termLength - 1) == 0 &&
            (mtu & ALIGNMENT - 1) == 0 && isPositionSound(header) || drops.count(Reason.INVALID);
    }

    private static boolean isPositionSound(final SetupFlyweight header)
    {
        final int offset = header.termOffset();
        return offset >= 0 && offset <= header.termLength() && (offset & ALIGNMENT - 1) == 0 &&
            header.activeTermId() - header.initialTermId() >= 0;
    }

    private boolean hasRoom(final long source, final long nowNs)
    {
        if (!rates.take(source, nowNs))
        {
            return drops.count(Reason.RATE);
        }
        if (Math.max(sessions.count(), images.get()) >= rules.sessions())
        {
            return drops.count(Reason.TOTAL);
        }
        return sessions.countOf(source) < rules.sessionsPerSource() || drops.count(Reason.SOURCE);
    }

    private boolean isOwn(
        final Session session, final int sessionId, final int streamId, final InetSocketAddress source, final long nowNs)
    {
        if (!session.source.equals(source))
        {
            return drops.count(Reason.FOREIGN);
        }
        if (rules.isOpen(streamId) || Claim.OWNER == owners.claim(localPort(), sessionId, streamId, source, nowNs, false))
        {
            return true;
        }
        return drops.count(Reason.UNOWNED); // registered once, and no longer
    }

    private boolean fits(final Session session, final DataHeaderFlyweight header, final UnsafeBuffer buffer, final int length)
    {
        return length <= session.mtu && FrameValidator.dataEnd(buffer, length) <= session.termLength &&
            header.termId() - session.initialTermId >= 0 || drops.count(Reason.INVALID);
    }

    /**
     * Data of a session that is not known: its publication found us again after a pause, and sends a SETUP only when it is asked to. The
     * frame itself goes no further, because nothing is known that it could be compared with.
     */
    private void elicit(
        final int sessionId,
        final int streamId,
        final int length,
        final InetSocketAddress source,
        final int transportIndex,
        final long nowNs)
    {
        final Claim claim = introduce(sessionId, streamId, source, nowNs);
        if (null == claim)
        {
            return;
        }
        final long from = NetworkFilter.sourceOf(source.getAddress());
        if (!rates.covers(from, length, SM_LENGTH))
        {
            drops.count(Reason.BUDGET);
        }
        else if (!rates.take(from, nowNs))
        {
            drops.count(Reason.RATE);
        }
        else
        {
            isEliciting = true;
            try
            {
                sendSetupElicitingStatusMessage(transportIndex, source, sessionId, streamId);
            }
            finally
            {
                isEliciting = false;
            }
        }
    }

    private int localPort()
    {
        if (0 == localPort)
        {
            try
            {
                localPort = ((InetSocketAddress)receiveDatagramChannel.getLocalAddress()).getPort();
            }
            catch (final IOException ex)
            {
                errorHandler.onError(ex);
            }
        }
        return localPort;
    }

    static int portOf(final UdpChannel channel)
    {
        final InetSocketAddress data = channel.remoteData();
        return null == data || null == channel.channelUri().get(CommonContext.ENDPOINT_PARAM_NAME) ? 0 : data.getPort();
    }
}

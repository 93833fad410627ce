package io.aeronspark.guard;

import io.aeron.driver.DriverConductorProxy;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.NetworkPublication;
import io.aeron.driver.media.UdpChannel;
import io.aeron.protocol.ErrorFlyweight;
import io.aeron.protocol.NakFlyweight;
import io.aeron.protocol.ResponseSetupFlyweight;
import io.aeron.protocol.RttMeasurementFlyweight;
import io.aeron.protocol.StatusMessageFlyweight;
import io.aeronspark.driver.HandshakeSendChannelEndpoint;
import io.aeronspark.guard.DropCounters.Reason;
import io.aeronspark.guard.OwnerRegistry.Claim;
import java.io.IOException;
import java.net.InetSocketAddress;
import org.agrona.collections.Hashing;
import org.agrona.collections.LongHashSet;
import org.agrona.concurrent.CachedNanoClock;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.AtomicCounter;

/**
 * A sending endpoint that listens to the receivers of its publications and to nobody else. A receiver introduces itself with a status message;
 * everything else is taken only from those who have.
 */
public final class GuardedSendChannelEndpoint extends HandshakeSendChannelEndpoint
{
    private final GuardRules rules;
    private final DropCounters drops;
    private final OwnerRegistry owners;
    private final ReceiverTable peers;
    private final CachedNanoClock clock;
    private final LongHashSet publications = new LongHashSet();
    private int localPort;

    GuardedSendChannelEndpoint(
        final UdpChannel udpChannel,
        final AtomicCounter statusIndicator,
        final MediaDriver.Context context,
        final GuardRules rules,
        final DropCounters drops,
        final OwnerRegistry owners)
    {
        super(udpChannel, statusIndicator, context);
        this.rules = rules;
        this.drops = drops;
        this.owners = owners;
        clock = context.senderCachedNanoClock();
        peers = new ReceiverTable(rules, udpChannel.isResponseControlMode(), clock.nanoTime());
    }

    /** {@inheritDoc} */
    @Override
    public boolean isValidFrame(final UnsafeBuffer buffer, final int length)
    {
        return FrameValidator.isControl(buffer, length) ? super.isValidFrame(buffer, length) : drops.count(Reason.INVALID);
    }

    /** {@inheritDoc} */
    @Override
    public void registerForSend(final NetworkPublication publication)
    {
        publications.add(Hashing.compoundKey(publication.sessionId(), publication.streamId()));
        owners.renew(clock.nanoTime()); // its owner was registered before it
        super.registerForSend(publication);
    }

    /** {@inheritDoc} */
    @Override
    public void unregisterForSend(final NetworkPublication publication)
    {
        super.unregisterForSend(publication);
        publications.remove(Hashing.compoundKey(publication.sessionId(), publication.streamId()));
        peers.forget(publication.sessionId(), publication.streamId());
    }

    /** {@inheritDoc} */
    @Override
    public void onStatusMessage(
        final StatusMessageFlyweight message,
        final UnsafeBuffer buffer,
        final int length,
        final InetSocketAddress source,
        final DriverConductorProxy conductor)
    {
        final int sessionId = message.sessionId();
        final int streamId = message.streamId();
        final long nowNs = clock.nanoTime();
        if (message.receiverWindowLength() < 0 || message.consumptionTermOffset() < 0)
        {
            drops.count(Reason.INVALID);
            return;
        }
        final boolean isJoining = rules.joining() && 0 == sessionId && 0 == streamId;
        if (isJoining ? !isPermitted(source) : !isEntitled(sessionId, streamId, source, nowNs))
        {
            return;
        }
        if (!isKernelsBusiness())
        {
            final Reason refused = peers.introduce(sessionId, streamId, source, message.receiverId(), nowNs);
            if (null != refused)
            {
                drops.count(refused);
                return;
            }
        }
        super.onStatusMessage(message, buffer, length, source, conductor);
    }

    /** {@inheritDoc} */
    @Override
    public void onNakMessage(
        final NakFlyweight message, final UnsafeBuffer buffer, final int length, final InetSocketAddress source)
    {
        if (isPeer(message.sessionId(), message.streamId(), source))
        {
            super.onNakMessage(message, buffer, length, source);
        }
    }

    /** {@inheritDoc} */
    @Override
    public void onError(
        final ErrorFlyweight message,
        final UnsafeBuffer buffer,
        final int length,
        final InetSocketAddress source,
        final DriverConductorProxy conductor)
    {
        if (isPeer(message.sessionId(), message.streamId(), source))
        {
            super.onError(message, buffer, length, source, conductor);
        }
    }

    /** {@inheritDoc} */
    @Override
    public void onRttMeasurement(
        final RttMeasurementFlyweight message, final UnsafeBuffer buffer, final int length, final InetSocketAddress source)
    {
        if (isPeer(message.sessionId(), message.streamId(), source))
        {
            super.onRttMeasurement(message, buffer, length, source);
        }
    }

    /** {@inheritDoc} */
    @Override
    public void onResponseSetup(
        final ResponseSetupFlyweight message,
        final UnsafeBuffer buffer,
        final int length,
        final InetSocketAddress source,
        final DriverConductorProxy conductor)
    {
        if (isPeer(message.sessionId(), message.streamId(), source))
        {
            super.onResponseSetup(message, buffer, length, source, conductor);
        }
    }

    private boolean isPeer(final int sessionId, final int streamId, final InetSocketAddress source)
    {
        final long nowNs = clock.nanoTime();
        return isEntitled(sessionId, streamId, source, nowNs) &&
            (isKernelsBusiness() || peers.isKnown(sessionId, streamId, source, nowNs) || drops.count(Reason.FOREIGN));
    }

    private boolean isEntitled(final int sessionId, final int streamId, final InetSocketAddress source, final long nowNs)
    {
        if (!isPermitted(source))
        {
            return false;
        }
        if (!publications.contains(Hashing.compoundKey(sessionId, streamId)))
        {
            return drops.count(Reason.UNWANTED);
        }
        if (isKernelsBusiness())
        {
            return true;
        }
        final boolean open = rules.isOpen(streamId);
        final Claim claim = owners.claim(localPort(), sessionId, streamId, source, nowNs, open);
        if (Claim.FOREIGN == claim)
        {
            return drops.count(Reason.FOREIGN);
        }
        return Claim.OWNER == claim || open || drops.count(Reason.UNOWNED);
    }

    private boolean isPermitted(final InetSocketAddress source)
    {
        return rules.networks().permits(source.getAddress()) || drops.count(Reason.NETWORK);
    }

    /** The socket of a unicast publication is connected: datagrams of others never come out of it. */
    private boolean isKernelsBusiness()
    {
        return null != connectAddress && !isMulticast();
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
        final InetSocketAddress control = channel.localControl();
        return null == control || !channel.hasExplicitControl() ? 0 : control.getPort();
    }
}

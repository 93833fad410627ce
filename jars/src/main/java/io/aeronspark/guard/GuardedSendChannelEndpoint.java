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
import java.net.InetSocketAddress;
import org.agrona.concurrent.CachedNanoClock;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.AtomicCounter;

/**
 * A sending endpoint that listens only to receivers of its publications. The rules are in {@link ReceiverAdmission};
 * this class connects them to Aeron's callbacks.
 * <p>
 * Runs on the driver's sender thread.
 */
public final class GuardedSendChannelEndpoint extends HandshakeSendChannelEndpoint
{
    private final DropCounters drops;
    private final ReceiverAdmission admission;
    private final CachedNanoClock clock;
    private final LocalPort localPort = new LocalPort();

    GuardedSendChannelEndpoint(
        final UdpChannel udpChannel,
        final AtomicCounter statusIndicator,
        final MediaDriver.Context context,
        final GuardRules rules,
        final DropCounters drops,
        final OwnerRegistry owners)
    {
        super(udpChannel, statusIndicator, context);
        this.drops = drops;
        clock = context.senderCachedNanoClock();
        admission = new ReceiverAdmission(
            rules, drops, owners, new ReceiverTable(rules, udpChannel.isResponseControlMode(), clock.nanoTime()));
    }

    @Override
    public boolean isValidFrame(final UnsafeBuffer buffer, final int length)
    {
        return FrameValidator.isForSender(buffer, length) ?
            super.isValidFrame(buffer, length) : drops.reject(DropReason.INVALID);
    }

    @Override
    public void registerForSend(final NetworkPublication publication)
    {
        admission.addPublication(publication.sessionId(), publication.streamId(), clock.nanoTime());
        super.registerForSend(publication);
    }

    @Override
    public void unregisterForSend(final NetworkPublication publication)
    {
        super.unregisterForSend(publication);
        admission.removePublication(publication.sessionId(), publication.streamId());
    }

    @Override
    public void onStatusMessage(
        final StatusMessageFlyweight message,
        final UnsafeBuffer buffer,
        final int length,
        final InetSocketAddress source,
        final DriverConductorProxy conductor)
    {
        if (admission.permitsStatusMessage(message, source, localPort(), isConnected(), clock.nanoTime()))
        {
            super.onStatusMessage(message, buffer, length, source, conductor);
        }
    }

    @Override
    public void onNakMessage(
        final NakFlyweight message, final UnsafeBuffer buffer, final int length, final InetSocketAddress source)
    {
        if (permits(message.sessionId(), message.streamId(), source))
        {
            super.onNakMessage(message, buffer, length, source);
        }
    }

    @Override
    public void onError(
        final ErrorFlyweight message,
        final UnsafeBuffer buffer,
        final int length,
        final InetSocketAddress source,
        final DriverConductorProxy conductor)
    {
        if (permits(message.sessionId(), message.streamId(), source))
        {
            super.onError(message, buffer, length, source, conductor);
        }
    }

    @Override
    public void onRttMeasurement(
        final RttMeasurementFlyweight message,
        final UnsafeBuffer buffer,
        final int length,
        final InetSocketAddress source)
    {
        if (permits(message.sessionId(), message.streamId(), source))
        {
            super.onRttMeasurement(message, buffer, length, source);
        }
    }

    @Override
    public void onResponseSetup(
        final ResponseSetupFlyweight message,
        final UnsafeBuffer buffer,
        final int length,
        final InetSocketAddress source,
        final DriverConductorProxy conductor)
    {
        if (permits(message.sessionId(), message.streamId(), source))
        {
            super.onResponseSetup(message, buffer, length, source, conductor);
        }
    }

    private boolean permits(final int sessionId, final int streamId, final InetSocketAddress source)
    {
        return admission.permitsFrame(sessionId, streamId, source, localPort(), isConnected(), clock.nanoTime());
    }

    /** The socket of a unicast publication is connected, so the kernel delivers no datagrams of other addresses. */
    private boolean isConnected()
    {
        return null != connectAddress && !isMulticast();
    }

    private int localPort()
    {
        return localPort.of(receiveDatagramChannel, errorHandler);
    }
}

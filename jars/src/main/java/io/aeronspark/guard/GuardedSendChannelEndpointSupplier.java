package io.aeronspark.guard;

import io.aeron.driver.MediaDriver;
import io.aeron.driver.SendChannelEndpointSupplier;
import io.aeron.driver.media.SendChannelEndpoint;
import io.aeron.driver.media.UdpChannel;
import java.net.InetSocketAddress;
import java.util.Properties;
import org.agrona.concurrent.status.AtomicCounter;

/**
 * Makes guarded sending endpoints for channels that ask for a guard, and endpoints of another supplier for all other
 * channels. Each driver needs an instance. Called on the driver's conductor thread.
 */
public final class GuardedSendChannelEndpointSupplier implements SendChannelEndpointSupplier
{
    private final Properties properties;
    private final SendChannelEndpointSupplier unguarded;
    private DropCounters drops;
    private OwnerRegistry owners;

    /** With rules from the system properties; for the driver's property {@code aeron.SendChannelEndpoint.supplier}. */
    public GuardedSendChannelEndpointSupplier()
    {
        this(System.getProperties(), SendChannelEndpoint::new);
    }

    /**
     * With rules from {@code properties}, named like the system properties, and a supplier of endpoints without a
     * guard.
     */
    public GuardedSendChannelEndpointSupplier(final Properties properties, final SendChannelEndpointSupplier unguarded)
    {
        this.properties = properties;
        this.unguarded = unguarded;
    }

    @Override
    public SendChannelEndpoint newInstance(
        final UdpChannel udpChannel, final AtomicCounter statusIndicator, final MediaDriver.Context context)
    {
        if (!GuardRules.isGuarded(udpChannel.channelUri(), portOf(udpChannel), properties))
        {
            return unguarded.newInstance(udpChannel, statusIndicator, context);
        }
        final GuardRules rules = GuardRules.of(udpChannel.channelUri(), properties);
        if (null == drops)
        {
            drops = new DropCounters("sending", context);
            owners = new OwnerRegistry(OwnerRegistry.PUBLISHED, context, context.senderCachedNanoClock().nanoTime());
        }
        return new GuardedSendChannelEndpoint(udpChannel, statusIndicator, context, rules, drops, owners);
    }

    /** The control port that publications name, or 0 without one. */
    private static int portOf(final UdpChannel channel)
    {
        final InetSocketAddress control = channel.localControl();
        return null == control || !channel.hasExplicitControl() ? 0 : control.getPort();
    }
}

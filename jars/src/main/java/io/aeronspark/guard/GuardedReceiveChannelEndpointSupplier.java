package io.aeronspark.guard;

import io.aeron.CommonContext;
import io.aeron.driver.DataPacketDispatcher;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ReceiveChannelEndpointSupplier;
import io.aeron.driver.media.ReceiveChannelEndpoint;
import io.aeron.driver.media.UdpChannel;
import java.net.InetSocketAddress;
import java.util.Properties;
import org.agrona.concurrent.status.AtomicCounter;

/**
 * Makes guarded receiving endpoints for channels that ask for a guard, and endpoints of another supplier for all other
 * channels. Each driver needs an instance. Called on the driver's conductor thread.
 */
public final class GuardedReceiveChannelEndpointSupplier implements ReceiveChannelEndpointSupplier
{
    private final Properties properties;
    private final ReceiveChannelEndpointSupplier unguarded;
    private DropCounters drops;
    private OwnerRegistry owners;
    private CookieRegistry cookies;

    /**
     * With rules from the system properties; for the driver's property {@code aeron.ReceiveChannelEndpoint.supplier}.
     */
    public GuardedReceiveChannelEndpointSupplier()
    {
        this(System.getProperties(), ReceiveChannelEndpoint::new);
    }

    /**
     * With rules from {@code properties}, named like the system properties, and a supplier of endpoints without a
     * guard.
     */
    public GuardedReceiveChannelEndpointSupplier(
        final Properties properties, final ReceiveChannelEndpointSupplier unguarded)
    {
        this.properties = properties;
        this.unguarded = unguarded;
    }

    @Override
    public ReceiveChannelEndpoint newInstance(
        final UdpChannel udpChannel,
        final DataPacketDispatcher dispatcher,
        final AtomicCounter statusIndicator,
        final MediaDriver.Context context)
    {
        if (!GuardRules.isGuarded(udpChannel.channelUri(), portOf(udpChannel), properties))
        {
            return unguarded.newInstance(udpChannel, dispatcher, statusIndicator, context);
        }
        if (udpChannel.isManualControlMode())
        {
            throw new IllegalArgumentException(
                "a subscription with several destinations cannot be guarded: " + udpChannel);
        }
        final GuardRules rules = GuardRules.of(udpChannel.channelUri(), properties);
        if (null == drops)
        {
            drops = new DropCounters("receiving", context);
            owners = new OwnerRegistry(OwnerRegistry.RECEIVED, context, context.receiverCachedNanoClock().nanoTime());
            cookies = new CookieRegistry(context, context.receiverCachedNanoClock().nanoTime());
        }
        cookies.refreshAtNextUse();
        return new GuardedReceiveChannelEndpoint(
            udpChannel, dispatcher, statusIndicator, context, rules, drops, owners, cookies);
    }

    /** The port that subscriptions name, or 0 if the driver chooses one. */
    private static int portOf(final UdpChannel channel)
    {
        final InetSocketAddress data = channel.remoteData();
        return null == data || null == channel.channelUri().get(CommonContext.ENDPOINT_PARAM_NAME) ? 0 : data.getPort();
    }
}

package io.aeronspark.guard;

import io.aeron.driver.DataPacketDispatcher;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ReceiveChannelEndpointSupplier;
import io.aeron.driver.media.ReceiveChannelEndpoint;
import io.aeron.driver.media.UdpChannel;
import java.util.Properties;
import org.agrona.concurrent.status.AtomicCounter;

/** Gives a driver guarded receiving endpoints where they are asked for, and another supplier's everywhere else. One instance a driver. */
public final class GuardedReceiveChannelEndpointSupplier implements ReceiveChannelEndpointSupplier
{
    private final Properties properties;
    private final ReceiveChannelEndpointSupplier unguarded;
    private DropCounters drops;
    private OwnerRegistry owners;

    /** With the rules in the system's properties; for {@code aeron.ReceiveChannelEndpoint.supplier}. */
    public GuardedReceiveChannelEndpointSupplier()
    {
        this(System.getProperties(), ReceiveChannelEndpoint::new);
    }

    /** With rules of its own, named as the system's properties are, and a supplier of what is not guarded. */
    public GuardedReceiveChannelEndpointSupplier(final Properties properties, final ReceiveChannelEndpointSupplier unguarded)
    {
        this.properties = properties;
        this.unguarded = unguarded;
    }

    /** {@inheritDoc} */
    @Override
    public ReceiveChannelEndpoint newInstance(
        final UdpChannel udpChannel,
        final DataPacketDispatcher dispatcher,
        final AtomicCounter statusIndicator,
        final MediaDriver.Context context)
    {
        if (!GuardRules.isAsked(udpChannel.channelUri(), GuardedReceiveChannelEndpoint.portOf(udpChannel), properties))
        {
            return unguarded.newInstance(udpChannel, dispatcher, statusIndicator, context);
        }
        if (udpChannel.isManualControlMode())
        {
            throw new IllegalArgumentException("a subscription with several destinations cannot be guarded: " + udpChannel);
        }
        final GuardRules rules = GuardRules.of(udpChannel.channelUri(), properties);
        if (null == drops)
        {
            drops = new DropCounters("receiving", context);
            owners = new OwnerRegistry(OwnerRegistry.RECEIVED, context, context.receiverCachedNanoClock().nanoTime());
        }
        return new GuardedReceiveChannelEndpoint(udpChannel, dispatcher, statusIndicator, context, rules, drops, owners);
    }
}

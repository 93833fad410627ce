package io.aeronspark.guard;

import io.aeron.driver.MediaDriver;
import io.aeron.driver.SendChannelEndpointSupplier;
import io.aeron.driver.media.SendChannelEndpoint;
import io.aeron.driver.media.UdpChannel;
import java.util.Properties;
import org.agrona.concurrent.status.AtomicCounter;

/** Gives a driver guarded sending endpoints where they are asked for, and another supplier's everywhere else. One instance a driver. */
public final class GuardedSendChannelEndpointSupplier implements SendChannelEndpointSupplier
{
    private final Properties properties;
    private final SendChannelEndpointSupplier unguarded;
    private DropCounters drops;
    private OwnerRegistry owners;

    /** With the rules in the system's properties; for {@code aeron.SendChannelEndpoint.supplier}. */
    public GuardedSendChannelEndpointSupplier()
    {
        this(System.getProperties(), SendChannelEndpoint::new);
    }

    /** With rules of its own, named as the system's properties are, and a supplier of what is not guarded. */
    public GuardedSendChannelEndpointSupplier(final Properties properties, final SendChannelEndpointSupplier unguarded)
    {
        this.properties = properties;
        this.unguarded = unguarded;
    }

    /** {@inheritDoc} */
    @Override
    public SendChannelEndpoint newInstance(
        final UdpChannel udpChannel, final AtomicCounter statusIndicator, final MediaDriver.Context context)
    {
        if (!GuardRules.isAsked(udpChannel.channelUri(), GuardedSendChannelEndpoint.portOf(udpChannel), properties))
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
}

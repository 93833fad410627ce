package io.aeronspark.driver;

import io.aeron.driver.DriverConductorProxy;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.NetworkPublication;
import io.aeron.driver.PublicationSetup;
import io.aeron.driver.SendChannelEndpointSupplier;
import io.aeron.driver.media.SendChannelEndpoint;
import io.aeron.driver.media.UdpChannel;
import io.aeron.protocol.HeaderFlyweight;
import io.aeron.protocol.SetupFlyweight;
import io.aeron.protocol.StatusMessageFlyweight;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import org.agrona.collections.Long2ObjectHashMap;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.AtomicCounter;

/**
 * Answers the first request for a response publication's set-up at once. Aeron's publication tries to send it when it is made, with nobody
 * to send it to, and then not again for 100 ms, whoever asks.
 * <p>
 * Runs on the sender's thread alone. The answer is as long as the question.
 */
public class HandshakeSendChannelEndpoint extends SendChannelEndpoint
{
    /** For the driver's context, or its property {@code aeron.SendChannelEndpoint.supplier}. */
    public static final class Supplier implements SendChannelEndpointSupplier
    {
        @Override
        public SendChannelEndpoint newInstance(
            final UdpChannel udpChannel, final AtomicCounter statusIndicator, final MediaDriver.Context context)
        {
            return new HandshakeSendChannelEndpoint(udpChannel, statusIndicator, context);
        }
    }

    private final Long2ObjectHashMap<NetworkPublication> unasked = new Long2ObjectHashMap<>();
    private final ByteBuffer setup = ByteBuffer.allocateDirect(SetupFlyweight.HEADER_LENGTH);
    private final SetupFlyweight header = new SetupFlyweight(setup);

    /** As the driver's supplier makes it. */
    @SuppressWarnings("this-escape")
    public HandshakeSendChannelEndpoint(
        final UdpChannel udpChannel, final AtomicCounter statusIndicator, final MediaDriver.Context context)
    {
        super(udpChannel, statusIndicator, context);
        header
            .version(HeaderFlyweight.CURRENT_VERSION)
            .headerType(HeaderFlyweight.HDR_TYPE_SETUP)
            .frameLength(SetupFlyweight.HEADER_LENGTH);
    }

    @Override
    public void registerForSend(final NetworkPublication publication)
    {
        super.registerForSend(publication);
        if (udpChannel().isResponseControlMode())
        {
            unasked.put(key(publication.sessionId(), publication.streamId()), publication);
        }
    }

    @Override
    public void unregisterForSend(final NetworkPublication publication)
    {
        super.unregisterForSend(publication);
        unasked.remove(key(publication.sessionId(), publication.streamId()));
    }

    @Override
    public void onStatusMessage(
        final StatusMessageFlyweight msg,
        final UnsafeBuffer buffer,
        final int length,
        final InetSocketAddress srcAddress,
        final DriverConductorProxy conductorProxy)
    {
        super.onStatusMessage(msg, buffer, length, srcAddress, conductorProxy);
        if ((msg.flags() & StatusMessageFlyweight.SEND_SETUP_FLAG) != 0)
        {
            // Only the first: once data has been sent, where a receiver joins is Aeron's to say.
            final NetworkPublication publication = unasked.remove(key(msg.sessionId(), msg.streamId()));
            if (publication != null)
            {
                PublicationSetup.describe(publication, header);
                setup.clear();
                send(setup, srcAddress);
            }
        }
    }

    private static long key(final int sessionId, final int streamId)
    {
        return ((long)sessionId << 32) | (streamId & 0xFFFF_FFFFL);
    }
}

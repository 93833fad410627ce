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
import org.agrona.collections.Hashing;
import org.agrona.collections.Long2ObjectHashMap;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.AtomicCounter;

/**
 * A sending endpoint that answers the first request for the SETUP frame of a response publication at once. Aeron sends
 * that frame when the publication is made, before it knows a receiver, and then not again for 100 ms, even when a
 * receiver asks for it.
 * <p>
 * Runs on the driver's sender thread alone. The answer is not longer than the request, so it amplifies nothing.
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

    /** Response publications that no receiver has asked for a SETUP yet, by session id and stream id. */
    private final Long2ObjectHashMap<NetworkPublication> awaitingFirstRequest = new Long2ObjectHashMap<>();
    private final ByteBuffer setupFrame = ByteBuffer.allocateDirect(SetupFlyweight.HEADER_LENGTH);
    private final SetupFlyweight setup = new SetupFlyweight(setupFrame);

    /** With the arguments that the driver passes to its supplier of endpoints. */
    public HandshakeSendChannelEndpoint(
        final UdpChannel udpChannel, final AtomicCounter statusIndicator, final MediaDriver.Context context)
    {
        super(udpChannel, statusIndicator, context);
        setup
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
            awaitingFirstRequest.put(
                Hashing.compoundKey(publication.sessionId(), publication.streamId()), publication);
        }
    }

    @Override
    public void unregisterForSend(final NetworkPublication publication)
    {
        super.unregisterForSend(publication);
        awaitingFirstRequest.remove(Hashing.compoundKey(publication.sessionId(), publication.streamId()));
    }

    @Override
    public void onStatusMessage(
        final StatusMessageFlyweight message,
        final UnsafeBuffer buffer,
        final int length,
        final InetSocketAddress source,
        final DriverConductorProxy conductor)
    {
        super.onStatusMessage(message, buffer, length, source, conductor);
        if ((message.flags() & StatusMessageFlyweight.SEND_SETUP_FLAG) != 0)
        {
            // Only the first request: once data has been sent, Aeron determines the position at which a receiver joins.
            final NetworkPublication publication =
                awaitingFirstRequest.remove(Hashing.compoundKey(message.sessionId(), message.streamId()));
            if (publication != null)
            {
                PublicationSetup.describe(publication, setup);
                setupFrame.clear();
                send(setupFrame, source);
            }
        }
    }
}

package io.aeronspark.driver;

import io.aeron.driver.DataPacketDispatcher;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ReceiveChannelEndpointSupplier;
import io.aeron.driver.media.ImageConnection;
import io.aeron.driver.media.ReceiveChannelEndpoint;
import io.aeron.driver.media.UdpChannel;
import org.agrona.concurrent.status.AtomicCounter;

/**
 * A receiving endpoint that lets rejections and response set-ups of handshakes leave at once. In Aeron 1.51 both wait
 * for the image's next status message time-out, 200 ms (aeron-io/aeron#2117 for the latter). {@link HandshakeTimeouts}
 * makes that 4 ms, and this class drops the frames that would then only be repeated. Other streams are as in Aeron.
 * <p>
 * Runs on the driver's receiver thread alone.
 */
public class HandshakeReceiveChannelEndpoint extends ReceiveChannelEndpoint
{
    /** For the driver's context, or its property {@code aeron.ReceiveChannelEndpoint.supplier}. */
    public static final class Supplier implements ReceiveChannelEndpointSupplier
    {
        @Override
        public ReceiveChannelEndpoint newInstance(
            final UdpChannel udpChannel,
            final DataPacketDispatcher dispatcher,
            final AtomicCounter statusIndicator,
            final MediaDriver.Context context)
        {
            return new HandshakeReceiveChannelEndpoint(udpChannel, dispatcher, statusIndicator, context);
        }
    }

    private final RepeatLimiter limiter = new RepeatLimiter(System.nanoTime());

    /** With the arguments that the driver passes to its supplier of endpoints. */
    public HandshakeReceiveChannelEndpoint(
        final UdpChannel udpChannel,
        final DataPacketDispatcher dispatcher,
        final AtomicCounter statusIndicator,
        final MediaDriver.Context context)
    {
        super(udpChannel, dispatcher, statusIndicator, context);
    }

    @Override
    public void sendStatusMessage(
        final ImageConnection[] controlAddresses,
        final int sessionId,
        final int streamId,
        final int termId,
        final int termOffset,
        final int windowLength,
        final short flags)
    {
        if (streamId != HandshakeStream.ID ||
            limiter.permitsStatusMessage(sessionId, termId, termOffset, windowLength, flags, System.nanoTime()))
        {
            super.sendStatusMessage(controlAddresses, sessionId, streamId, termId, termOffset, windowLength, flags);
        }
    }

    /** Send a status message that the limit of repetitions does not count. */
    protected final void sendStatusMessageAtOnce(
        final ImageConnection[] controlAddresses,
        final int sessionId,
        final int streamId,
        final int termId,
        final int termOffset,
        final int windowLength)
    {
        super.sendStatusMessage(controlAddresses, sessionId, streamId, termId, termOffset, windowLength, (short)0);
    }

    /** Send an error frame that the limit of repetitions does not count. */
    protected final void sendErrorFrameAtOnce(
        final ImageConnection[] controlAddresses,
        final int sessionId,
        final int streamId,
        final int errorCode,
        final String errorMessage)
    {
        super.sendErrorFrame(controlAddresses, sessionId, streamId, errorCode, errorMessage);
    }

    @Override
    public void sendErrorFrame(
        final ImageConnection[] controlAddresses,
        final int sessionId,
        final int streamId,
        final int errorCode,
        final String errorMessage)
    {
        if (streamId != HandshakeStream.ID || limiter.permitsError(sessionId, System.nanoTime()))
        {
            super.sendErrorFrame(controlAddresses, sessionId, streamId, errorCode, errorMessage);
        }
    }

    @Override
    public void sendResponseSetup(
        final ImageConnection[] controlAddresses, final int sessionId, final int streamId, final int responseSessionId)
    {
        if (streamId != HandshakeStream.ID ||
            limiter.permitsResponseSetup(sessionId, responseSessionId, System.nanoTime()))
        {
            super.sendResponseSetup(controlAddresses, sessionId, streamId, responseSessionId);
        }
    }
}

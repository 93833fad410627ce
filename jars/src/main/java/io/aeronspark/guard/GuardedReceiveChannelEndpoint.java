package io.aeronspark.guard;

import io.aeron.driver.DataPacketDispatcher;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.media.UdpChannel;
import io.aeron.protocol.DataHeaderFlyweight;
import io.aeron.protocol.RttMeasurementFlyweight;
import io.aeron.protocol.SetupFlyweight;
import io.aeronspark.driver.HandshakeReceiveChannelEndpoint;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import org.agrona.concurrent.CachedNanoClock;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.AtomicCounter;

/**
 * A receiving endpoint that checks every frame before the driver allocates or sends anything for it. The rules are in
 * {@link SessionAdmission}; this class connects them to Aeron's callbacks.
 * <p>
 * Frames and answers are on the receiver thread; the methods that count references are on the conductor thread.
 */
public final class GuardedReceiveChannelEndpoint extends HandshakeReceiveChannelEndpoint
{
    private final DropCounters drops;
    private final SubscribedStreams subscribed = new SubscribedStreams();
    private final SessionAdmission admission;
    private final CachedNanoClock clock;
    private final LocalPort localPort = new LocalPort();
    private final UnsafeBuffer answer = new UnsafeBuffer(0, 0);
    private boolean isRequestingSetup;

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
        this.drops = drops;
        clock = context.receiverCachedNanoClock();
        admission = new SessionAdmission(
            rules,
            drops,
            owners,
            subscribed,
            udpChannel.receiverWindowLengthOrDefault(context.initialWindowLength()),
            context.imageLivenessTimeoutNs(),
            clock.nanoTime());
    }

    @Override
    public boolean isValidFrame(final UnsafeBuffer buffer, final int length)
    {
        return FrameValidator.isForReceiver(buffer, length) ?
            super.isValidFrame(buffer, length) : drops.reject(DropReason.INVALID);
    }

    @Override
    public void onSetupMessage(
        final SetupFlyweight header,
        final UnsafeBuffer buffer,
        final int length,
        final InetSocketAddress source,
        final int transportIndex)
    {
        if (admission.permitsSetup(header, length, source, localPort(), clock.nanoTime()))
        {
            super.onSetupMessage(header, buffer, length, source, transportIndex);
        }
    }

    @Override
    public int onDataPacket(
        final DataHeaderFlyweight header,
        final UnsafeBuffer buffer,
        final int length,
        final InetSocketAddress source,
        final int transportIndex)
    {
        final long nowNs = clock.nanoTime();
        final int port = localPort();
        if (admission.permitsData(header, buffer, length, source, port, nowNs))
        {
            return super.onDataPacket(header, buffer, length, source, transportIndex);
        }
        final int sessionId = header.sessionId();
        final int streamId = header.streamId();
        if (admission.permitsSetupRequest(sessionId, streamId, length, source, port, nowNs))
        {
            requestSetup(transportIndex, source, sessionId, streamId);
        }
        return 0;
    }

    @Override
    public void onRttMeasurement(
        final RttMeasurementFlyweight header,
        final UnsafeBuffer buffer,
        final int length,
        final InetSocketAddress source,
        final int transportIndex)
    {
        if (admission.permitsRttMeasurement(header, length, source, localPort(), clock.nanoTime()))
        {
            super.onRttMeasurement(header, buffer, length, source, transportIndex);
        }
    }

    /**
     * Called for every answer. One that may not leave is reported as sent, because to Aeron a short send is an error.
     */
    @Override
    public int sendTo(final ByteBuffer buffer, final InetSocketAddress remoteAddress)
    {
        final int length = buffer.remaining();
        if (isRequestingSetup)
        {
            return super.sendTo(buffer, remoteAddress);
        }
        answer.wrap(buffer, buffer.position(), length);
        final boolean isPermitted = admission.permitsAnswer(
            FrameValidator.controlSessionId(answer, 0),
            FrameValidator.controlStreamId(answer, 0),
            length,
            hasExplicitControl() && !isMulticast(),
            clock.nanoTime());
        return isPermitted ? super.sendTo(buffer, remoteAddress) : length;
    }

    @Override
    public int incRefToStream(final int streamId)
    {
        subscribed.addStream(streamId);
        return super.incRefToStream(streamId);
    }

    @Override
    public int decRefToStream(final int streamId)
    {
        final int left = super.decRefToStream(streamId);
        if (0 == left)
        {
            subscribed.removeStream(streamId);
        }
        return left;
    }

    @Override
    public long incRefToStreamAndSession(final int streamId, final int sessionId)
    {
        subscribed.addSession(streamId, sessionId);
        return super.incRefToStreamAndSession(streamId, sessionId);
    }

    @Override
    public long decRefToStreamAndSession(final int streamId, final int sessionId)
    {
        final long left = super.decRefToStreamAndSession(streamId, sessionId);
        if (0 == left)
        {
            subscribed.removeSession(streamId, sessionId);
        }
        return left;
    }

    @Override
    public void incRefImages()
    {
        super.incRefImages();
        subscribed.addImage();
    }

    @Override
    public void decRefImages()
    {
        super.decRefImages();
        subscribed.removeImage();
    }

    /**
     * The request passes {@link #sendTo} without a session; its bytes were already subtracted from the source's budget.
     */
    private void requestSetup(
        final int transportIndex, final InetSocketAddress source, final int sessionId, final int streamId)
    {
        isRequestingSetup = true;
        try
        {
            sendSetupElicitingStatusMessage(transportIndex, source, sessionId, streamId);
        }
        finally
        {
            isRequestingSetup = false;
        }
    }

    private int localPort()
    {
        return localPort.of(receiveDatagramChannel, errorHandler);
    }
}

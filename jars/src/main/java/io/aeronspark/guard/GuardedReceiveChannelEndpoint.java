package io.aeronspark.guard;

import io.aeron.ErrorCode;
import io.aeron.driver.DataPacketDispatcher;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.media.ImageConnection;
import io.aeron.driver.media.UdpChannel;
import io.aeron.protocol.DataHeaderFlyweight;
import io.aeron.protocol.HeaderFlyweight;
import io.aeron.protocol.RttMeasurementFlyweight;
import io.aeron.protocol.SetupFlyweight;
import io.aeronspark.driver.HandshakeReceiveChannelEndpoint;
import io.aeronspark.driver.HandshakeStream;
import io.aeronspark.driver.HandshakeTimeouts;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.function.Consumer;
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
    /** Bytes that a session may send before its admission: a HELLO and the packet after it. */
    private static final int WINDOW_BEFORE_ADMISSION = 4 * 1024;

    private final DropCounters drops;
    private final SubscribedStreams subscribed = new SubscribedStreams();
    private final SessionAdmission admission;
    private final CachedNanoClock clock;
    private final LocalPort localPort = new LocalPort();
    private final UnsafeBuffer answer = new UnsafeBuffer(0, 0);
    private final UnsafeBuffer setupBuffer = new UnsafeBuffer(new byte[SetupFlyweight.HEADER_LENGTH]);
    private final UnsafeBuffer firstPacket = new UnsafeBuffer(0, 0);
    private final DataHeaderFlyweight firstHeader = new DataHeaderFlyweight();
    /** Whether the bytes of the next answers were already subtracted from the budget of their source. */
    private boolean isAnsweringFromBudget;
    private boolean isAnsweringBeforeAdmission;
    private int bytesToAnswer;

    GuardedReceiveChannelEndpoint(
        final UdpChannel udpChannel,
        final DataPacketDispatcher dispatcher,
        final AtomicCounter statusIndicator,
        final MediaDriver.Context context,
        final GuardRules rules,
        final DropCounters drops,
        final OwnerRegistry owners,
        final CookieRegistry cookies)
    {
        super(udpChannel, dispatcher, statusIndicator, context);
        this.drops = drops;
        clock = context.receiverCachedNanoClock();
        admission = new SessionAdmission(
            rules,
            drops,
            owners,
            subscribed,
            new AddressProof(cookies),
            udpChannel.receiverWindowLengthOrDefault(context.initialWindowLength()),
            HandshakeTimeouts.usualImageLivenessTimeoutNs(context),
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
        final long nowNs = clock.nanoTime();
        final int port = localPort();
        if (admission.needsCookie(header.sessionId(), header.streamId(), port, nowNs))
        {
            if (admission.permitsSetupBeforeAdmission(header, source))
            {
                acknowledge(header, length, source);
            }
        }
        else if (admission.permitsSetup(header, length, source, port, nowNs))
        {
            super.onSetupMessage(header, buffer, length, source, transportIndex);
        }
        else
        {
            rejectUnknown(
                header.sessionId(), header.streamId(), header.activeTermId(), header.termOffset(), length, source, nowNs);
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
        final int sessionId = header.sessionId();
        final int streamId = header.streamId();
        if (admission.needsCookie(sessionId, streamId, port, nowNs))
        {
            return onDataBeforeAdmission(header, buffer, length, source, transportIndex, nowNs);
        }
        if (admission.permitsData(header, buffer, length, source, port, nowNs))
        {
            return super.onDataPacket(header, buffer, length, source, transportIndex);
        }
        if (admission.permitsSetupRequest(sessionId, streamId, length, source, port, nowNs))
        {
            requestSetup(transportIndex, source, sessionId, streamId);
        }
        else if ((header.flags() & DataHeaderFlyweight.EOS_FLAG) == 0) // a closed publication need not know
        {
            rejectUnknown(sessionId, streamId, header.termId(), header.termOffset(), length, source, nowNs);
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
     * Called for every answer. An answer that is not permitted is reported as sent, because a short send is an error to
     * Aeron.
     */
    @Override
    public int sendTo(final ByteBuffer buffer, final InetSocketAddress remoteAddress)
    {
        final int length = buffer.remaining();
        if (isAnsweringFromBudget)
        {
            return super.sendTo(buffer, remoteAddress);
        }
        if (isAnsweringBeforeAdmission)
        {
            if (length > bytesToAnswer)
            {
                drops.count(DropReason.BUDGET);
                return length;
            }
            bytesToAnswer -= length;
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

    /** An image's first status message shows that the image takes data now. */
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
        deliverFirstPacket(sessionId, streamId);
        super.sendStatusMessage(controlAddresses, sessionId, streamId, termId, termOffset, windowLength, flags);
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

    /** Handle data of a session before its admission: answer the packet, or admit the session and make its image. */
    private int onDataBeforeAdmission(
        final DataHeaderFlyweight header,
        final UnsafeBuffer buffer,
        final int length,
        final InetSocketAddress source,
        final int transportIndex,
        final long nowNs)
    {
        switch (admission.decideBeforeAdmission(header, buffer, length, source, localPort(), nowNs))
        {
            case ADMIT ->
            {
                super.onSetupMessage(setupOf(header), setupBuffer, SetupFlyweight.HEADER_LENGTH, source, transportIndex);
                return deliverFirstPacket(header.sessionId(), header.streamId());
            }
            case REJECT -> answerBeforeAdmission(length, source, to -> sendRejection(
                to, header.sessionId(), header.streamId(), header.termId(), header.termOffset(),
                admission.rejection()));
            case REPEAT -> answerBeforeAdmission(length, source, to -> sendNakMessage(
                to, header.sessionId(), header.streamId(), header.termId(), 0, header.termOffset()));
            case IGNORE ->
            {
            }
        }
        return 0;
    }

    /** Connect the publication of a session before its admission, so that the client sends its first packet. */
    private void acknowledge(final SetupFlyweight setup, final int length, final InetSocketAddress source)
    {
        answerBeforeAdmission(length, source, to -> sendStatusMessageAtOnce(
            to, setup.sessionId(), setup.streamId(), setup.activeTermId(), setup.termOffset(), WINDOW_BEFORE_ADMISSION));
    }

    /** Send the answers to a frame of {@code length} bytes, as far as they are not longer than the frame together. */
    private void answerBeforeAdmission(
        final int length, final InetSocketAddress source, final Consumer<ImageConnection[]> send)
    {
        bytesToAnswer = length;
        isAnsweringBeforeAdmission = true;
        try
        {
            send.accept(new ImageConnection[]{new ImageConnection(clock.nanoTime(), source)});
        }
        finally
        {
            isAnsweringBeforeAdmission = false;
        }
    }

    /** The SETUP of a client's handshake, whose first packet has this header. */
    private SetupFlyweight setupOf(final DataHeaderFlyweight header)
    {
        final SetupFlyweight setup = new SetupFlyweight(setupBuffer);
        setup.version(HeaderFlyweight.CURRENT_VERSION)
            .flags(SetupFlyweight.SEND_RESPONSE_SETUP_FLAG)
            .headerType(HeaderFlyweight.HDR_TYPE_SETUP)
            .frameLength(SetupFlyweight.HEADER_LENGTH);
        return setup
            .termOffset(0)
            .sessionId(header.sessionId())
            .streamId(header.streamId())
            .initialTermId(header.termId())
            .activeTermId(header.termId())
            .termLength(HandshakeStream.TERM_LENGTH)
            .mtuLength(HandshakeStream.MTU)
            .ttl(0);
    }

    /**
     * Pass the packet that admitted a session to the session's image. If the driver's conductor has its own thread, the
     * image may not exist yet. The image's first status message then causes another call.
     */
    private int deliverFirstPacket(final int sessionId, final int streamId)
    {
        final long nowNs = clock.nanoTime();
        final byte[] packet = admission.firstPacketOf(sessionId, streamId, nowNs);
        if (null == packet)
        {
            return 0;
        }
        firstPacket.wrap(packet);
        firstHeader.wrap(packet);
        final InetSocketAddress source = admission.sourceOf(sessionId, streamId, nowNs);
        final int taken = super.onDataPacket(firstHeader, firstPacket, packet.length, source, 0);
        if (taken > 0)
        {
            admission.onFirstPacketTaken(sessionId, streamId, nowNs);
        }
        return taken;
    }

    /** The request passes {@link #sendTo} without a session. */
    private void requestSetup(
        final int transportIndex, final InetSocketAddress source, final int sessionId, final int streamId)
    {
        isAnsweringFromBudget = true;
        try
        {
            sendSetupElicitingStatusMessage(transportIndex, source, sessionId, streamId);
        }
        finally
        {
            isAnsweringFromBudget = false;
        }
    }

    /** Tell the source of a refused frame that its session is unknown here, so that it need not wait for a time-out. */
    private void rejectUnknown(
        final int sessionId,
        final int streamId,
        final int termId,
        final int termOffset,
        final int length,
        final InetSocketAddress source,
        final long nowNs)
    {
        if (!admission.permitsRejection(sessionId, streamId, length, source, nowNs))
        {
            return;
        }
        final ImageConnection[] to = {new ImageConnection(nowNs, source)};
        isAnsweringFromBudget = true;
        try
        {
            sendRejection(to, sessionId, streamId, termId, termOffset, SessionAdmission.UNKNOWN_SESSION);
        }
        finally
        {
            isAnsweringFromBudget = false;
        }
    }

    /**
     * A publication passes on only errors of a receiver that it knows by a status message. One that was connected to
     * another driver's receiver does not know this one, so a status message without a window comes first.
     */
    private void sendRejection(
        final ImageConnection[] to,
        final int sessionId,
        final int streamId,
        final int termId,
        final int termOffset,
        final String reason)
    {
        sendStatusMessageAtOnce(to, sessionId, streamId, termId, termOffset, 0);
        sendErrorFrameAtOnce(to, sessionId, streamId, ErrorCode.IMAGE_REJECTED.value(), reason);
    }

    private int localPort()
    {
        return localPort.of(receiveDatagramChannel, errorHandler);
    }
}

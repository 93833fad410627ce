package io.aeronspark.driver;

import io.aeron.driver.DataPacketDispatcher;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ReceiveChannelEndpointSupplier;
import io.aeron.driver.media.ImageConnection;
import io.aeron.driver.media.ReceiveChannelEndpoint;
import io.aeron.driver.media.UdpChannel;
import java.util.concurrent.TimeUnit;
import org.agrona.collections.Long2ObjectHashMap;
import org.agrona.concurrent.status.AtomicCounter;

/**
 * Lets rejections and response set-ups of handshakes leave at once. In Aeron 1.51 both wait for the image's next status message
 * time-out, 200 ms (aeron-io/aeron#2117 for the latter). {@link HandshakeTimeouts} makes that short; what would then only repeat itself is
 * held back here, longer each time, before it reaches the socket.
 * <p>
 * Runs on the receiver's thread alone.
 */
public class HandshakeReceiveChannelEndpoint extends ReceiveChannelEndpoint
{
    private static final long ERROR_PACE_NS = TimeUnit.MILLISECONDS.toNanos(200);
    private static final long SETUP_PACE_NS = TimeUnit.MILLISECONDS.toNanos(20);
    /** The driver keeps an image for seconds after its handshake, and would repeat all of this as long. */
    private static final long LONGEST_PACE_NS = TimeUnit.SECONDS.toNanos(1);
    private static final long FORGET_AFTER_NS = TimeUnit.SECONDS.toNanos(2);

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

    private final Long2ObjectHashMap<Pace> paces = new Long2ObjectHashMap<>();
    private long forgotAt = System.nanoTime();

    private static final class Pace
    {
        int termId;
        int termOffset;
        int window;
        short flags;
        long statusPace;
        long statusAt;
        long errorPace;
        long errorAt;
        int setupSessionId;
        long setupPace;
        long setupAt;
        long usedAt;
    }

    /** As the driver's supplier makes it. */
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
        if (streamId != HandshakeTimeouts.STREAM_ID)
        {
            super.sendStatusMessage(controlAddresses, sessionId, streamId, termId, termOffset, windowLength, flags);
            return;
        }
        final long now = System.nanoTime();
        final Pace pace = paceOf(sessionId, streamId, now);
        // The end of a stream, too, is repeated as often as images may, until they are given up.
        final boolean same = pace.statusPace > 0 && pace.flags == flags &&
            pace.termId == termId && pace.termOffset == termOffset && pace.window == windowLength;
        if (same && now - pace.statusAt < pace.statusPace)
        {
            return;
        }
        // Repeated soon at first: one that is lost while a stream begins would else delay it by the whole pace.
        pace.statusPace = same ? Math.min(2 * pace.statusPace, LONGEST_PACE_NS) : 2 * HandshakeTimeouts.STATUS_TIMEOUT_NS;
        pace.termId = termId;
        pace.termOffset = termOffset;
        pace.window = windowLength;
        pace.flags = flags;
        pace.statusAt = now;
        super.sendStatusMessage(controlAddresses, sessionId, streamId, termId, termOffset, windowLength, flags);
    }

    @Override
    public void sendErrorFrame(
        final ImageConnection[] controlAddresses,
        final int sessionId,
        final int streamId,
        final int errorCode,
        final String errorMessage)
    {
        if (streamId != HandshakeTimeouts.STREAM_ID)
        {
            super.sendErrorFrame(controlAddresses, sessionId, streamId, errorCode, errorMessage);
            return;
        }
        final long now = System.nanoTime();
        final Pace pace = paceOf(sessionId, streamId, now);
        if (pace.errorPace == 0 || now - pace.errorAt >= pace.errorPace)
        {
            pace.errorPace = pace.errorPace == 0 ? ERROR_PACE_NS : Math.min(2 * pace.errorPace, LONGEST_PACE_NS);
            pace.errorAt = now;
            super.sendErrorFrame(controlAddresses, sessionId, streamId, errorCode, errorMessage);
        }
    }

    @Override
    public void sendResponseSetup(
        final ImageConnection[] controlAddresses, final int sessionId, final int streamId, final int responseSessionId)
    {
        if (streamId != HandshakeTimeouts.STREAM_ID)
        {
            super.sendResponseSetup(controlAddresses, sessionId, streamId, responseSessionId);
            return;
        }
        final long now = System.nanoTime();
        final Pace pace = paceOf(sessionId, streamId, now);
        final boolean same = pace.setupPace > 0 && pace.setupSessionId == responseSessionId;
        if (!same || now - pace.setupAt >= pace.setupPace)
        {
            pace.setupPace = same ? Math.min(2 * pace.setupPace, LONGEST_PACE_NS) : SETUP_PACE_NS;
            pace.setupSessionId = responseSessionId;
            pace.setupAt = now;
            super.sendResponseSetup(controlAddresses, sessionId, streamId, responseSessionId);
        }
    }

    private Pace paceOf(final int sessionId, final int streamId, final long now)
    {
        final long key = ((long)sessionId << 32) | (streamId & 0xFFFF_FFFFL);
        Pace pace = paces.get(key);
        if (pace == null)
        {
            pace = new Pace();
            paces.put(key, pace);
        }
        pace.usedAt = now;
        if (now - forgotAt > FORGET_AFTER_NS)
        {
            forgotAt = now;
            paces.values().removeIf(one -> now - one.usedAt > FORGET_AFTER_NS);
        }
        return pace;
    }
}

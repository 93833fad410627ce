package io.aeronspark.driver;

import io.aeron.driver.CongestionControl;
import io.aeron.driver.DefaultCongestionControlSupplier;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.media.UdpChannel;
import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;
import org.agrona.concurrent.NanoClock;
import org.agrona.concurrent.status.CountersManager;

/**
 * Gives images of the handshake stream shorter time-outs than the driver's other images:
 * <ul>
 * <li>The status message time-out, 4 ms. Rejections and response set-ups leave with a status message, so the driver's
 * usual 200 ms would be added to each of them.</li>
 * <li>The image liveness time-out, 1 s. A rejected image stays until then and is polled by the driver all the
 * time.</li>
 * </ul>
 * A driver has one value of each for all its images, and short values for all would keep its thread busy with every
 * idle stream.
 * <p>
 * It is a supplier of Aeron's usual congestion control, because the driver calls that just before it reads the two
 * values from its context for a new image, on the same thread. Runs on the driver's conductor thread; one instance per
 * driver.
 */
public final class HandshakeTimeouts extends DefaultCongestionControlSupplier
{
    static final long STATUS_MESSAGE_TIMEOUT_NS = TimeUnit.MILLISECONDS.toNanos(4);
    private static final long IMAGE_LIVENESS_TIMEOUT_NS = TimeUnit.SECONDS.toNanos(1);

    private boolean isInitialised;
    private long usualStatusMessageTimeoutNs;
    private long usualImageLivenessTimeoutNs;

    /**
     * The image liveness time-out of the driver's settings. The context of a driver with these time-outs has that of
     * the last image.
     */
    public static long usualImageLivenessTimeoutNs(final MediaDriver.Context context)
    {
        return context.congestionControlSupplier() instanceof HandshakeTimeouts timeouts && timeouts.isInitialised ?
            timeouts.usualImageLivenessTimeoutNs : context.imageLivenessTimeoutNs();
    }

    @Override
    public CongestionControl newInstance(
        final long registrationId,
        final UdpChannel udpChannel,
        final int streamId,
        final int sessionId,
        final int termLength,
        final int senderMtuLength,
        final InetSocketAddress controlAddress,
        final InetSocketAddress sourceAddress,
        final NanoClock nanoClock,
        final MediaDriver.Context context,
        final CountersManager countersManager)
    {
        setTimeouts(streamId, context);
        return super.newInstance(
            registrationId,
            udpChannel,
            streamId,
            sessionId,
            termLength,
            senderMtuLength,
            controlAddress,
            sourceAddress,
            nanoClock,
            context,
            countersManager);
    }

    /**
     * Set the time-outs that the next image, of {@code streamId}, will read. They never exceed the driver's settings.
     */
    void setTimeouts(final int streamId, final MediaDriver.Context context)
    {
        if (!isInitialised)
        {
            isInitialised = true;
            usualStatusMessageTimeoutNs = context.statusMessageTimeoutNs();
            usualImageLivenessTimeoutNs = context.imageLivenessTimeoutNs();
        }
        final boolean isHandshake = streamId == HandshakeStream.ID;
        context.statusMessageTimeoutNs(isHandshake ?
            Math.min(STATUS_MESSAGE_TIMEOUT_NS, usualStatusMessageTimeoutNs) : usualStatusMessageTimeoutNs);
        context.imageLivenessTimeoutNs(isHandshake ?
            Math.min(IMAGE_LIVENESS_TIMEOUT_NS, usualImageLivenessTimeoutNs) : usualImageLivenessTimeoutNs);
    }
}

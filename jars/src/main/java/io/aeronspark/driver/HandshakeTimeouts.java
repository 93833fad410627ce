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
 * Gives the images of handshakes time-outs of their own: a short one for status messages, with which rejections and response set-ups
 * leave (200 ms otherwise), and a shorter life: whoever was rejected is not heard any more, and its image is looked at all the while. A
 * driver has one of each for all its images, and one as short for all would keep its thread busy with every idle stream.
 * <p>
 * The congestion control is Aeron's own. It is asked for just before an image reads its driver's time-outs, on the same thread.
 */
public final class HandshakeTimeouts extends DefaultCongestionControlSupplier
{
    /** The stream of every handshake. */
    public static final int STREAM_ID = 0x41530001;

    static final long STATUS_TIMEOUT_NS = TimeUnit.MILLISECONDS.toNanos(4);
    private static final long LIVENESS_TIMEOUT_NS = TimeUnit.SECONDS.toNanos(1);

    private boolean known;
    private long statusTimeoutNs;
    private long livenessTimeoutNs;

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
        if (!known)
        {
            known = true;
            statusTimeoutNs = context.statusMessageTimeoutNs();
            livenessTimeoutNs = context.imageLivenessTimeoutNs();
        }
        final boolean handshake = streamId == STREAM_ID;
        context.statusMessageTimeoutNs(handshake ? Math.min(STATUS_TIMEOUT_NS, statusTimeoutNs) : statusTimeoutNs);
        context.imageLivenessTimeoutNs(handshake ? Math.min(LIVENESS_TIMEOUT_NS, livenessTimeoutNs) : livenessTimeoutNs);
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
}

package io.aeronspark.driver;

import java.util.concurrent.TimeUnit;
import org.agrona.collections.Int2ObjectHashMap;

/**
 * Decides which frames of a handshake's image may leave: a frame that only repeats the last one has to wait for a
 * pause, which doubles with each repetition up to 1 s. Without it an image would send each frame every few
 * milliseconds, because {@link HandshakeTimeouts} shortens its status message time-out, and would go on until its image
 * liveness time-out.
 * <p>
 * All times are of {@link System#nanoTime()}. Not thread-safe.
 */
final class RepeatLimiter
{
    /** Short at first: if the frame that opens a stream's window is lost, the stream begins late by this pause. */
    static final long FIRST_STATUS_PAUSE_NS = 2 * HandshakeTimeouts.STATUS_MESSAGE_TIMEOUT_NS;
    static final long FIRST_ERROR_PAUSE_NS = TimeUnit.MILLISECONDS.toNanos(200);
    static final long FIRST_SETUP_PAUSE_NS = TimeUnit.MILLISECONDS.toNanos(20);
    static final long MAX_PAUSE_NS = TimeUnit.SECONDS.toNanos(1);
    /** Longer than {@link #MAX_PAUSE_NS}, so that a session that still repeats a frame is not forgotten. */
    static final long FORGET_AFTER_NS = TimeUnit.SECONDS.toNanos(2);

    /** The last frame of each type that the image of one session sent. A pause of 0 means that none was sent. */
    private static final class Sent
    {
        int termId;
        int termOffset;
        int windowLength;
        short flags;
        long statusPauseNs;
        long statusNs;
        long errorPauseNs;
        long errorNs;
        int responseSessionId;
        long setupPauseNs;
        long setupNs;
        long usedNs;
    }

    private final Int2ObjectHashMap<Sent> bySession = new Int2ObjectHashMap<>();
    private long sweptNs;

    RepeatLimiter(final long nowNs)
    {
        sweptNs = nowNs;
    }

    /**
     * Whether the status message may leave now. Flags are compared too: an image repeats the end-of-stream flag until
     * its liveness time-out.
     */
    boolean permitsStatusMessage(
        final int sessionId,
        final int termId,
        final int termOffset,
        final int windowLength,
        final short flags,
        final long nowNs)
    {
        final Sent sent = find(sessionId, nowNs);
        final boolean isRepeated = sent.statusPauseNs > 0 && sent.flags == flags &&
            sent.termId == termId && sent.termOffset == termOffset && sent.windowLength == windowLength;
        if (isRepeated && nowNs - sent.statusNs < sent.statusPauseNs)
        {
            return false;
        }
        sent.statusPauseNs = isRepeated ? doubled(sent.statusPauseNs) : FIRST_STATUS_PAUSE_NS;
        sent.termId = termId;
        sent.termOffset = termOffset;
        sent.windowLength = windowLength;
        sent.flags = flags;
        sent.statusNs = nowNs;
        return true;
    }

    /** Whether an error frame, the rejection of the image, may leave now. */
    boolean permitsError(final int sessionId, final long nowNs)
    {
        final Sent sent = find(sessionId, nowNs);
        if (sent.errorPauseNs > 0 && nowNs - sent.errorNs < sent.errorPauseNs)
        {
            return false;
        }
        sent.errorPauseNs = sent.errorPauseNs > 0 ? doubled(sent.errorPauseNs) : FIRST_ERROR_PAUSE_NS;
        sent.errorNs = nowNs;
        return true;
    }

    /** Whether a response set-up that names {@code responseSessionId} may leave now. */
    boolean permitsResponseSetup(final int sessionId, final int responseSessionId, final long nowNs)
    {
        final Sent sent = find(sessionId, nowNs);
        final boolean isRepeated = sent.setupPauseNs > 0 && sent.responseSessionId == responseSessionId;
        if (isRepeated && nowNs - sent.setupNs < sent.setupPauseNs)
        {
            return false;
        }
        sent.setupPauseNs = isRepeated ? doubled(sent.setupPauseNs) : FIRST_SETUP_PAUSE_NS;
        sent.responseSessionId = responseSessionId;
        sent.setupNs = nowNs;
        return true;
    }

    private static long doubled(final long pauseNs)
    {
        return Math.min(2 * pauseNs, MAX_PAUSE_NS);
    }

    private Sent find(final int sessionId, final long nowNs)
    {
        Sent sent = bySession.get(sessionId);
        if (sent == null)
        {
            sent = new Sent();
            bySession.put(sessionId, sent);
        }
        sent.usedNs = nowNs;
        if (nowNs - sweptNs > FORGET_AFTER_NS)
        {
            sweptNs = nowNs;
            bySession.values().removeIf(one -> nowNs - one.usedNs > FORGET_AFTER_NS);
        }
        return sent;
    }
}

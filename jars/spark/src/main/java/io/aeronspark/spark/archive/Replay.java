package io.aeronspark.spark.archive;

import static io.aeron.archive.client.ArchiveException.MAX_REPLAYS;

import io.aeron.Aeron;
import io.aeron.Image;
import io.aeron.Subscription;
import io.aeron.archive.client.AeronArchive;
import io.aeron.archive.client.ReplayParams;
import io.aeronspark.spark.error.TransportError;
import io.aeronspark.spark.error.WaitTimeout;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.IdleStrategy;

/** A running replay of {@code [start, end)} of a recording, both frame boundaries, with its image. */
final class Replay implements AutoCloseable
{
    private static final int STREAM_ID = 20121;

    /** For the archive's report of the reason for which it ended a replay. */
    private static final long REASON_NS = TimeUnit.MILLISECONDS.toNanos(500);

    /** For a free replay session of the archive; the replays of others may be long. */
    private static final long QUEUE_NS = TimeUnit.MINUTES.toNanos(10);

    /** The archive's reasons for which it does not begin a replay, or ends it, at a damaged frame. */
    private static final Pattern DAMAGE = Pattern.compile(
        "replayPosition=(\\d+) does not point to a valid frame" +
        "|(?:unexpected end of recording|CRC checksum mismatch) at position=(\\d+)");

    private static final long NO_SESSION = Aeron.NULL_VALUE;

    private final ArchiveSession session;
    private final Recording recording;
    private final long start;
    private final long end;
    private final Opened opened;
    private final Image image;

    private record Opened(Subscription subscription, long replaySessionId)
    {
        Image image()
        {
            if (replaySessionId != NO_SESSION)
            {
                return subscription.imageBySessionId((int)replaySessionId);
            }
            return subscription.imageCount() > 0 ? subscription.imageAtIndex(0) : null;
        }
    }

    /**
     * Open the replay.
     *
     * @param timeoutNs longest wait for its image.
     * @throws UnreadableBytesException if the archive does not begin it, at a damaged frame or without a cause.
     */
    Replay(
        final ArchiveSession session,
        final Recording recording,
        final long start,
        final long end,
        final long timeoutNs) throws UnreadableBytesException
    {
        this.session = session;
        this.recording = recording;
        this.start = start;
        this.end = end;
        opened = open(timeoutNs);
        try
        {
            image = awaitImage(timeoutNs);
        }
        catch (final Exception ex)
        {
            stop(false);
            throw ex;
        }
    }

    Image image()
    {
        return image;
    }

    long start()
    {
        return start;
    }

    /**
     * Throw an error if the replay ended before its end.
     *
     * @throws UnreadableBytesException for a damaged frame.
     */
    void check() throws UnreadableBytesException
    {
        if (!image.isClosed() && !session.client().isClosed())
        {
            return;
        }
        final String text = "the replay of recording " + recording.id() + " of " + session.address().name() +
            " ended at position " + image.position() + " of [" + start + ", " + end + ")";
        final String reason = pollError(REASON_NS);
        throwDamage(reason);
        throw new TransportError(
            reason.isEmpty() ? text : text + ": " + reason, "Try again. The archive or its media driver stopped.");
    }

    @Override
    public void close()
    {
        stop(image.position() >= end);
    }

    private void stop(final boolean isFinished)
    {
        final AeronClient client = session.client();
        client.close(opened.subscription);
        if (!isFinished && opened.replaySessionId != NO_SESSION)
        {
            client.commands().execute(() ->
            {
                final ConnectedArchive connected = client.connectedArchive(session.address());
                if (connected != null && connected.isConnected())
                {
                    connected.archive().stopReplay(opened.replaySessionId);
                }
            });
        }
    }

    private Opened open(final long timeoutNs) throws UnreadableBytesException
    {
        final String channel = session.address().replayChannel();
        try
        {
            if ("aeron:ipc".equals(channel))
            {
                return ask((aeron, archive) -> openIpc(aeron, archive, channel));
            }
            return channel.contains("control-mode=response") ?
                ask((aeron, archive) -> openResponse(archive, channel)) : openUdp(channel, timeoutNs);
        }
        catch (final TransportError ex)
        {
            throwDamage(ex.what());
            throw ex;
        }
    }

    private Opened openIpc(final Aeron aeron, final AeronArchive archive, final String channel)
    {
        final long id = archive.startReplay(recording.id(), start, end - start, channel, STREAM_ID);
        // The Aeron session id distinguishes the replays of one machine, which share a channel and a stream id.
        return new Opened(aeron.addSubscription(channel + "?session-id=" + (int)id, STREAM_ID), id);
    }

    private Opened openResponse(final AeronArchive archive, final String channel)
    {
        final ReplayParams params = new ReplayParams().position(start).length(end - start);
        return new Opened(archive.replay(recording.id(), channel, STREAM_ID, params), NO_SESSION);
    }

    private Opened openUdp(final String channel, final long timeoutNs)
    {
        // Subscribe before the request: without a subscriber a replay sends its next setup frame 100 ms later.
        final Subscription subscription = session.ask(
            "subscribing to " + channel + " stream " + STREAM_ID,
            (aeron, archive) -> aeron.addSubscription(channel, STREAM_ID),
            Subscription::close);
        try
        {
            final String resolved = await(timeoutNs, subscription::tryResolveChannelEndpointPort, "a port for " +
                channel);
            return ask((aeron, archive) -> new Opened(
                subscription, archive.startReplay(recording.id(), start, end - start, resolved, STREAM_ID)));
        }
        catch (final RuntimeException ex)
        {
            session.client().close(subscription);
            throw ex;
        }
    }

    /** Request the replay; wait while all replay sessions of the archive are in use. */
    private Opened ask(final BiFunction<Aeron, AeronArchive, Opened> request)
    {
        return await(QUEUE_NS, () ->
        {
            try
            {
                return session.ask(
                    "replaying recording " + recording.id() + " from position " + start,
                    request,
                    (late) -> late.subscription.close());
            }
            catch (final TransportError ex)
            {
                if (Failures.archiveCode(ex) != MAX_REPLAYS)
                {
                    throw ex;
                }
                return null;
            }
        }, "a free replay session of the archive (its limit is aeron.archive.max.concurrent.replays)");
    }

    /** Wait for the image. The archive may end the replay at a damaged frame before the image is seen. */
    private Image awaitImage(final long timeoutNs) throws UnreadableBytesException
    {
        final String[] reason = {""};
        final Optional<Image> found = await(timeoutNs, () ->
        {
            final Image arrived = opened.image();
            if (arrived == null)
            {
                reason[0] = pollError(0);
            }
            return arrived != null || DAMAGE.matcher(reason[0]).find() ? Optional.ofNullable(arrived) : null;
        }, "the replay of recording " + recording.id() + " from position " + start);
        throwDamage(reason[0]);
        return found.orElseThrow();
    }

    private String pollError(final long waitNs)
    {
        final long deadline = System.nanoTime() + waitNs;
        final IdleStrategy idle = backoff();
        while (!session.client().isClosed())
        {
            final String found =
                session.ask("polling the archive's responses", AeronArchive::pollForErrorResponse);
            if (found != null)
            {
                return found;
            }
            if (System.nanoTime() - deadline >= 0)
            {
                break;
            }
            idle.idle();
        }
        return "";
    }

    private <T> T await(final long timeoutNs, final Supplier<T> find, final String awaited)
    {
        final long deadline = System.nanoTime() + timeoutNs;
        final IdleStrategy idle = backoff();
        while (true)
        {
            final T found = find.get();
            if (found != null)
            {
                return found;
            }
            if (System.nanoTime() - deadline >= 0)
            {
                throw new WaitTimeout(
                    "waited " + Seconds.text(timeoutNs) + " s for " + awaited, "");
            }
            session.onTurn().run();
            idle.idle();
        }
    }

    /** Of waits for the archive: short at first, because a replay begins within a millisecond. */
    static IdleStrategy backoff()
    {
        return new BackoffIdleStrategy(10, 20, 1_000, 1_000_000);
    }

    private static void throwDamage(final String reason) throws UnreadableBytesException
    {
        final Matcher found = DAMAGE.matcher(reason);
        if (found.find())
        {
            final String position = found.group(1) == null ? found.group(2) : found.group(1);
            throw new UnreadableBytesException(Long.parseLong(position), null);
        }
    }
}

package io.aeronspark.spark.archive;

import io.aeron.Image;
import io.aeronspark.spark.error.TransportError;
import io.aeronspark.spark.error.WaitTimeout;
import java.util.function.Predicate;
import org.agrona.concurrent.IdleStrategy;

/**
 * The frames of {@code [start, end)} of a recording, both frame boundaries, by a replay. The archive reads ahead: at a
 * damaged frame it ends the replay without some frames before it. A second replay has these. Not thread-safe.
 */
final class ReplayedRange implements AutoCloseable
{
    private final ArchiveSession session;
    private final Recording recording;
    private final long end;
    private final long timeoutNs;
    private final IdleStrategy idle = Replay.backoff();
    private long stop;
    private long position;
    private long progressNs = System.nanoTime();
    private long waits;
    private Replay replay;

    /**
     * @param timeoutNs longest wait for more data.
     * @throws UnreadableBytesException if the first frame is damaged, or with its cause if no replay is possible.
     */
    ReplayedRange(
        final ArchiveSession session,
        final Recording recording,
        final long start,
        final long end,
        final long timeoutNs) throws UnreadableBytesException
    {
        this.session = session;
        this.recording = recording;
        this.end = end;
        this.timeoutNs = timeoutNs;
        this.stop = end;
        this.position = start;
        replay = begin(start);
    }

    long position()
    {
        return position;
    }

    /** Idle turns in which no data had arrived. */
    long waits()
    {
        return waits;
    }

    /**
     * Call {@code take} with the image, and return its result: whether it took frames, or has no room for them.
     *
     * @throws UnreadableBytesException if the replay ended.
     */
    boolean poll(final Predicate<Image> take) throws UnreadableBytesException
    {
        if (position == stop && stop < end)
        {
            throw new UnreadableBytesException(position, null);
        }
        final Image image = replay.image();
        final boolean isTaken = take.test(image);
        final long reached = image.position();
        if (reached > position)
        {
            position = reached;
            progress();
            idle.reset();
        }
        else if (!isTaken)
        {
            awaitMore();
        }
        return isTaken;
    }

    /** Restart the wait for data, without the time in which the reader was busy. */
    void progress()
    {
        progressNs = System.nanoTime();
    }

    @Override
    public void close()
    {
        if (replay != null)
        {
            replay.close();
            replay = null;
        }
    }

    private void awaitMore() throws UnreadableBytesException
    {
        try
        {
            replay.check();
        }
        catch (final UnreadableBytesException damaged)
        {
            close();
            stopAt(damaged, position);
            replay = begin(position);
            return;
        }
        catch (final TransportError ex)
        {
            throw new UnreadableBytesException(position, ex);
        }
        if (System.nanoTime() - progressNs > timeoutNs)
        {
            throw new WaitTimeout(
                "waited " + Seconds.text(timeoutNs) + " s for more of recording " + recording.id() + " of " +
                session.address().name() + " (at position " + position + " of [" + replay.start() + ", " + end + "))",
                "");
        }
        waits++;
        session.onTurn().run();
        idle.idle();
    }

    private Replay begin(final long start) throws UnreadableBytesException
    {
        while (true)
        {
            try
            {
                return new Replay(session, recording, start, stop, timeoutNs);
            }
            catch (final UnreadableBytesException damaged)
            {
                stopAt(damaged, start);
            }
            catch (final TransportError ex)
            {
                throw new UnreadableBytesException(start, ex);
            }
        }
    }

    /** Let the next replay, from {@code start}, end at the damaged frame, unless that is its first frame. */
    private void stopAt(final UnreadableBytesException damaged, final long start) throws UnreadableBytesException
    {
        if (start >= damaged.position() || damaged.position() >= stop)
        {
            throw new UnreadableBytesException(start, null);
        }
        stop = damaged.position();
    }
}

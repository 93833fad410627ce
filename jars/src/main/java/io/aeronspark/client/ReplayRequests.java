package io.aeronspark.client;

import io.aeron.archive.client.AeronArchive;
import io.aeron.archive.client.ArchiveException;
import io.aeron.archive.client.ControlResponsePoller;
import io.aeron.archive.codecs.ControlResponseCode;
import io.aeron.archive.codecs.RecordingSignalEventDecoder;
import io.aeron.exceptions.AeronException;
import io.aeron.exceptions.TimeoutException;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.locks.Lock;
import org.agrona.concurrent.IdleStrategy;

/**
 * Starts replays of an archive, several at once: all requests are sent before the first response is awaited, because a
 * response takes longer than the replay of a short recording. Also has the errors with which the archive ends replays,
 * each for its own replay. Thread-safe.
 */
public final class ReplayRequests
{
    /** In place of the session of a replay that was not started, and of the errors of other requests. */
    public static final long NO_REPLAY = -1;

    private final AeronArchive archive;
    private final ControlResponsePoller poller;
    private final Lock lock;
    private final Map<Long, Long> sessions = new Newest<>(); // by correlation id
    private final Map<Long, String> errors = new Newest<>(); // by session
    private final Map<Long, Boolean> abandoned = new Newest<>(); // correlation ids without a response

    public ReplayRequests(final AeronArchive archive)
    {
        this.archive = archive;
        poller = archive.controlResponsePoller();
        lock = archive.context().lock();
    }

    /** The session of each replay that was requested, and the archive's reason if it was not started. */
    public record Started(long[] sessions, ArchiveException[] failures)
    {
    }

    /** Start replays to a channel and stream; wait for the archive's responses to all of them. */
    public Started start(
        final String channel, final int streamId, final long[] recordings, final long[] starts, final long[] ends)
    {
        final long[] correlations = new long[recordings.length];
        final Started started = new Started(new long[recordings.length], new ArchiveException[recordings.length]);
        Arrays.fill(started.sessions, NO_REPLAY);
        lock.lock();
        try
        {
            for (int i = 0; i < recordings.length; i++)
            {
                correlations[i] = archive.context().aeron().nextCorrelationId();
                if (!archive.archiveProxy().replay(
                    recordings[i], starts[i], ends[i] - starts[i], channel, streamId, correlations[i],
                    archive.controlSessionId()))
                {
                    throw new ArchiveException("failed to send replay request");
                }
            }
            awaitResponses(correlations, started);
            return started;
        }
        catch (final RuntimeException error)
        {
            abandon(correlations, started);
            throw error;
        }
        finally
        {
            lock.unlock();
        }
    }

    /**
     * Return an error with which the archive has ended a replay, or null; with {@link #NO_REPLAY} that of another request
     * to which the archive has responded before. Does not wait.
     */
    public String error(final long session)
    {
        lock.lock();
        try
        {
            if (!errors.containsKey(session))
            {
                if (!poller.subscription().isConnected())
                {
                    return archive.pollForErrorResponse();
                }
                if (poller.poll() > 0 && isResponse())
                {
                    handleLate();
                }
            }
            return errors.remove(session);
        }
        finally
        {
            lock.unlock();
        }
    }

    private void awaitResponses(final long[] correlations, final Started started)
    {
        final IdleStrategy idle = archive.context().idleStrategy();
        final long begin = System.nanoTime();
        idle.reset();
        for (int open = correlations.length; open > 0;)
        {
            if (poller.poll() == 0)
            {
                checkWait(begin, open);
                idle.idle();
            }
            else if (isResponse())
            {
                final int index = indexOf(correlations, poller.correlationId());
                if (index < 0 || started.sessions[index] != NO_REPLAY)
                {
                    handleLate(); // of another request, or of a replay that has begun and ended meanwhile
                    continue;
                }
                open--;
                if (poller.code() == ControlResponseCode.OK)
                {
                    started.sessions[index] = poller.relevantId();
                    sessions.put(correlations[index], poller.relevantId());
                }
                else
                {
                    started.failures[index] = new ArchiveException(
                        "response for correlationId=" + correlations[index] + ", error: " + poller.errorMessage(),
                        (int)poller.relevantId(),
                        correlations[index]);
                }
            }
        }
    }

    /** Stop the replays of a failed request, also those that begin later: an archive can run only a few at once. */
    private void abandon(final long[] correlations, final Started started)
    {
        for (int i = 0; i < correlations.length; i++)
        {
            if (started.sessions[i] != NO_REPLAY)
            {
                stop(started.sessions[i]);
            }
            else if (started.failures[i] == null)
            {
                abandoned.put(correlations[i], true);
            }
        }
    }

    private void stop(final long session)
    {
        final long correlationId = archive.context().aeron().nextCorrelationId();
        archive.archiveProxy().stopReplay(session, correlationId, archive.controlSessionId());
    }

    private boolean isResponse()
    {
        return poller.isPollComplete() &&
            poller.controlSessionId() == archive.controlSessionId() &&
            poller.templateId() != RecordingSignalEventDecoder.TEMPLATE_ID;
    }

    /** Handle a response that no caller waits for: keep an error, and stop a replay that was abandoned. */
    private void handleLate()
    {
        final long correlationId = poller.correlationId();
        if (abandoned.remove(correlationId) != null && poller.code() == ControlResponseCode.OK)
        {
            stop(poller.relevantId());
        }
        else if (poller.code() == ControlResponseCode.ERROR)
        {
            errors.put(sessions.getOrDefault(correlationId, NO_REPLAY), poller.errorMessage());
        }
    }

    private void checkWait(final long begin, final int open)
    {
        if (!poller.subscription().isConnected())
        {
            archive.pollForErrorResponse(); // the session knows then that it has ended
            throw new AeronException("response channel from archive is not connected");
        }
        if (Thread.interrupted())
        {
            throw new AeronException("unexpected interrupt");
        }
        if (System.nanoTime() - begin > archive.context().messageTimeoutNs())
        {
            throw new TimeoutException("awaiting response - " + open + " requests of replays");
        }
    }

    private static int indexOf(final long[] values, final long wanted)
    {
        for (int i = 0; i < values.length; i++)
        {
            if (values[i] == wanted)
            {
                return i;
            }
        }
        return -1;
    }

    /** A map of the newest entries: that of a replay is used within seconds, and a process may make millions. */
    private static final class Newest<V> extends LinkedHashMap<Long, V>
    {
        private static final long serialVersionUID = 1L;
        private static final int LIMIT = 1_000;

        @Override
        protected boolean removeEldestEntry(final Map.Entry<Long, V> eldest)
        {
            return size() > LIMIT;
        }
    }
}

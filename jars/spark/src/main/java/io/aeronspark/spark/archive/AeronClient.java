package io.aeronspark.spark.archive;

import io.aeron.Aeron;
import io.aeron.CncFileDescriptor;
import io.aeron.Subscription;
import io.aeronspark.client.DaemonThreadFactory;
import io.aeronspark.client.LastErrorHandler;
import io.aeronspark.spark.error.TransportError;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.agrona.CloseHelper;
import org.agrona.concurrent.SleepingIdleStrategy;

/**
 * An Aeron client of the media driver in one directory, with its sessions with archives. A client keeps this machine's
 * node running. The thread of its {@link Commands} connects it, and has its sessions.
 * <p>
 * Thread-safe.
 */
final class AeronClient
{
    /** The longest delay until the client sees a new image. Aeron's default of 16 ms would delay each replay. */
    private static final long CONDUCTOR_IDLE_NS = TimeUnit.MILLISECONDS.toNanos(1);

    /**
     * A client is closed while threads of other tasks may be inside a poll. Such a poll ends at once, but the client must
     * not unmap its logs before.
     */
    private static final long CLOSE_LINGER_NS = TimeUnit.MILLISECONDS.toNanos(100);

    /** An archive waits for minutes, see {@link ConnectedArchive#keepAlive}. */
    private static final long KEEP_ALIVE_NS = TimeUnit.SECONDS.toNanos(30);

    private final String aeronDir;
    private final Object driver;
    private final Commands commands = new Commands();
    private final LastErrorHandler errors = new LastErrorHandler();
    private final Map<ArchiveAddress, ConnectedArchive> archives = new HashMap<>();
    private volatile Aeron aeron;

    /** Leases of this client, and the time at which the last one ended; both under the lock of AeronClients. */
    int leases;
    long unusedSinceNs;

    AeronClient(final String aeronDir)
    {
        this.aeronDir = aeronDir;
        this.driver = driverOf(aeronDir);
        commands.repeat(() -> archives.values().forEach(ConnectedArchive::keepAlive), KEEP_ALIVE_NS);
    }

    /** Directory of the media driver. */
    String aeronDir()
    {
        return aeronDir;
    }

    /** The thread of this client. */
    Commands commands()
    {
        return commands;
    }

    /** Whether the client was closed, or its driver was replaced by another one. A client not yet connected is open. */
    boolean isClosed()
    {
        final Aeron connected = aeron;
        return (connected != null && connected.isClosed()) || !Objects.equals(driver, driverOf(aeronDir));
    }

    /** Return the result of a call on the thread of this client; its errors name the action. */
    <T> T call(
        final String action, final Callable<T> call, final Consumer<? super T> discard, final Runnable onTurn)
    {
        return commands.call(() -> Failures.during(action, call), discard, onTurn);
    }

    /** Return Aeron's client, connected. Only for the thread of this client. */
    Aeron aeron()
    {
        if (aeron == null)
        {
            aeron = Failures.during("connecting to the media driver in " + aeronDir, () -> Aeron.connect(
                new Aeron.Context()
                    .aeronDirectoryName(aeronDir)
                    .errorHandler(errors)
                    .idleStrategy(new SleepingIdleStrategy(CONDUCTOR_IDLE_NS))
                    .threadFactory(new DaemonThreadFactory())
                    .closeLingerDurationNs(CLOSE_LINGER_NS)
                    .clientName("aeron-spark-jvm")));
        }
        if (aeron.isClosed())
        {
            final Throwable last = errors.last();
            throw new TransportError(
                "the Aeron client of " + aeronDir + " ended (" +
                (last == null ? "no reason known" : Failures.describe(last)) + ")",
                "Try again. The media driver stopped, or this process was suspended for longer than its timeout.");
        }
        return aeron;
    }

    /** Return the session with an archive; replace a lost one. Only for the thread of this client. */
    ConnectedArchive archive(final ArchiveAddress address)
    {
        final Aeron connected = aeron();
        final ConnectedArchive known = archives.get(address);
        if (known != null && known.isConnected())
        {
            return known;
        }
        CloseHelper.quietClose(known);
        archives.remove(address);
        final ConnectedArchive made = ConnectedArchive.connect(connected, address, errors);
        archives.put(address, made);
        return made;
    }

    /** Return the session with an archive if there is one. Only for the thread of this client. */
    ConnectedArchive connectedArchive(final ArchiveAddress address)
    {
        return archives.get(address);
    }

    /** Close a subscription on the thread of this client. */
    void close(final Subscription subscription)
    {
        commands.execute(subscription::close);
    }

    /** Close the client, with its sessions, after the calls that wait now. */
    void close()
    {
        commands.execute(() ->
        {
            CloseHelper.quietCloseAll(archives.values());
            CloseHelper.quietClose(aeron);
        });
        commands.shutdown();
    }

    private static Object driverOf(final String aeronDir)
    {
        try
        {
            final Path cnc = Path.of(aeronDir, CncFileDescriptor.CNC_FILE);
            return Files.readAttributes(cnc, BasicFileAttributes.class).fileKey();
        }
        catch (final IOException ignored)
        {
            return null;
        }
    }
}

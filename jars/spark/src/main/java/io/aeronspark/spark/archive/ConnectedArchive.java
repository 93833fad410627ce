package io.aeronspark.spark.archive;

import io.aeron.Aeron;
import io.aeron.AeronCounters;
import io.aeron.archive.client.AeronArchive;
import io.aeron.archive.client.ArchiveException;
import io.aeron.exceptions.TimeoutException;
import io.aeron.security.CredentialsSupplier;
import io.aeronspark.spark.error.ConnectError;
import io.aeronspark.spark.error.SetupError;
import io.aeronspark.spark.error.TransportError;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.agrona.ErrorHandler;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.status.CountersReader;

/** A session with an archive. Only for the thread of its client, see {@link Commands}. */
final class ConnectedArchive implements AutoCloseable
{
    /** An archive starts after its driver. */
    private static final long START_NS = TimeUnit.SECONDS.toNanos(2);

    private static final long START_PAUSE_NS = TimeUnit.MILLISECONDS.toNanos(5);

    private final AeronArchive archive;

    private ConnectedArchive(final AeronArchive archive)
    {
        this.archive = archive;
    }

    static ConnectedArchive connect(final Aeron aeron, final ArchiveAddress address, final ErrorHandler errors)
    {
        if (address.isLocal())
        {
            requireArchive(aeron, address.aeronDir());
        }
        final AeronArchive.Context context = new AeronArchive.Context()
            .aeron(aeron)
            .ownsAeronClient(false)
            .controlRequestChannel(address.controlChannel())
            .controlRequestStreamId(address.controlStreamId())
            .controlResponseChannel(address.responseChannel())
            .messageTimeoutNs(address.timeoutNs())
            .errorHandler(errors)
            .idleStrategy(new BackoffIdleStrategy(10, 20, 1_000, 200_000));
        if (!address.credentialsFile().isEmpty())
        {
            context.credentialsSupplier(credentials(address.credentialsFile()));
        }
        final String where = address.controlChannel() + " stream " + address.controlStreamId();
        try
        {
            return new ConnectedArchive(AeronArchive.connect(context));
        }
        catch (final TimeoutException ex)
        {
            throw new ConnectError(
                "no archive answered at " + where + " within " + Seconds.text(address.timeoutNs()) + " s",
                "Start the archive, correct option 'archive' (its control channel), let its responses reach " +
                address.responseChannel() + " (option 'responseChannel'), or wait longer (option 'connectTimeout').",
                ex);
        }
        catch (final ArchiveException ex)
        {
            final boolean isRejected = ex.errorCode() == ArchiveException.AUTHENTICATION_REJECTED;
            throw new TransportError(
                "connecting to the archive at " + where + " failed: " + Failures.describe(ex),
                isRejected ? "Set its credentials with option 'credentialsFile'." : "",
                ex);
        }
    }

    AeronArchive archive()
    {
        return archive;
    }

    boolean isConnected()
    {
        return archive.state() == AeronArchive.State.CONNECTED;
    }

    /** Keep the session: an archive drops one, with its replays, whose client has not polled for some minutes. */
    void keepAlive()
    {
        if (isConnected())
        {
            archive.pollForErrorResponse();
        }
    }

    @Override
    public void close()
    {
        archive.close();
    }

    /** Without this check the connection attempt to a driver without an archive would time out. */
    private static void requireArchive(final Aeron aeron, final String aeronDir)
    {
        final long end = System.nanoTime() + START_NS;
        while (!hasArchive(aeron.countersReader()))
        {
            if (System.nanoTime() - end > 0)
            {
                throw new ConnectError(
                    "the media driver in " + aeronDir + " has no archive",
                    "Start an archive on that driver, name another one with option 'archive', or omit 'aeronDir' to " +
                    "use this machine's node, which has an archive.");
            }
            LockSupport.parkNanos(START_PAUSE_NS);
        }
    }

    private static boolean hasArchive(final CountersReader counters)
    {
        for (int id = 0; id <= counters.maxCounterId(); id++)
        {
            if (counters.getCounterTypeId(id) == AeronCounters.ARCHIVE_CONTROL_SESSIONS_TYPE_ID)
            {
                return true;
            }
        }
        return false;
    }

    private static CredentialsSupplier credentials(final String path)
    {
        final byte[] secret = read(path);
        return new CredentialsSupplier()
        {
            @Override
            public byte[] encodedCredentials()
            {
                return secret;
            }

            @Override
            public byte[] onChallenge(final byte[] challenge)
            {
                return secret;
            }
        };
    }

    private static byte[] read(final String path)
    {
        final String home = System.getProperty("user.home");
        try
        {
            final byte[] secret = Files.readAllBytes(Path.of(path.startsWith("~/") ? home + path.substring(1) : path));
            int length = secret.length;
            while (length > 0 && secret[length - 1] == '\n')
            {
                length--;
            }
            return Arrays.copyOf(secret, length);
        }
        catch (final IOException ex)
        {
            throw new SetupError(
                "option 'credentialsFile': " + path + " cannot be read: " + ex.getMessage(),
                "Correct the path or the file's mode on every host that reads or writes the stream.");
        }
    }
}

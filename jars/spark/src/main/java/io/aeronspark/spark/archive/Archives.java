package io.aeronspark.spark.archive;

import io.aeronspark.spark.channel.AeronUri;
import io.aeronspark.spark.channel.HostPort;
import io.aeronspark.spark.error.ConnectError;
import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.error.SetupError;
import io.aeronspark.spark.option.DirectRoute;
import io.aeronspark.spark.option.ReadOptions;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/** Finds the media driver of this machine and the archives of a query's options. */
public final class Archives
{
    private static final String LOCAL_CONTROL_CHANNEL = "aeron:ipc?term-length=64k";
    private static final int CONTROL_STREAM_ID = 10;

    /** For a driver that another program starts. */
    private static final long POLL_NS = TimeUnit.MILLISECONDS.toNanos(50);

    /** A start takes about one second, but minutes on an overloaded machine. */
    private static final long START_S = 600;

    private Archives()
    {
    }

    /**
     * Return the address of a query's stream; start this machine's node if necessary, where one belongs.
     *
     * @param python that can start the node, or null.
     * @param onTurn is called in each idle turn of a wait.
     */
    public static StreamAddress of(final ReadOptions options, final String python, final Runnable onTurn)
    {
        final DirectRoute route = options.route();
        final NodeRecord.Driver driver = driver(route, python, onTurn);
        final List<ArchiveAddress> archives = new ArrayList<>();
        for (final String archive : route.archive())
        {
            archives.add(ArchiveAddress.EMBEDDED.equals(archive) ?
                embedded(driver, route) : named(AeronUri.parse(archive), route, driver.aeronDir()));
        }
        refuseArchiveStreams(route, archives);
        return new StreamAddress(
            route.channel(), route.streamId(), List.copyOf(archives), options.idleTimeoutNs(), options.readPath());
    }

    private static NodeRecord.Driver driver(final DirectRoute route, final String python, final Runnable onTurn)
    {
        OpenPackages.ensure();
        final NodeRecord node = new NodeRecord(System.getenv(), System.getProperty("user.name"), route.aeronDir());
        final long deadline = System.nanoTime() + route.connectTimeoutNs();
        boolean isStarted = false;
        while (true)
        {
            final NodeRecord.Driver found = node.find();
            if (found != null)
            {
                return found;
            }
            if (node.isOfNode() && !isStarted)
            {
                start(node, python, onTurn);
                isStarted = true;
            }
            else if (System.nanoTime() - deadline >= 0)
            {
                throw new ConnectError(
                    "no media driver runs in " + node.aeronDir() + " (waited " +
                    Seconds.text(route.connectTimeoutNs()) + " s)",
                    "Start it, or let aeron-spark run one there: 'aeron-spark node start --aeron-dir " +
                    node.aeronDir() + "'.");
            }
            onTurn.run();
            LockSupport.parkNanos(POLL_NS);
        }
    }

    private static void start(final NodeRecord node, final String python, final Runnable onTurn)
    {
        final String command = "'aeron-spark node start --aeron-dir " + node.aeronDir() + "'";
        if (python == null)
        {
            throw new SetupError(
                "this machine's node does not run, and this JVM knows no Python that can start it",
                "Start it with " + command + ", name a media driver and an archive with the options 'aeronDir' and " +
                "'archive', or set spark.aeron.python to a Python that has aeron-spark.");
        }
        try
        {
            final Process process = new ProcessBuilder(
                python, "-m", "aeron_spark", "node", "start", "--aeron-dir", node.aeronDir().toString(),
                "--linger", "30")
                .redirectErrorStream(true)
                .start();
            process.getOutputStream().close();
            final String output = output(process, onTurn);
            if (process.exitValue() != 0)
            {
                throw new SetupError("this machine's node did not start: " + output.strip(), "Start it with " + command);
            }
        }
        catch (final IOException ex)
        {
            throw new SetupError(
                "this machine's node does not run, and " + python + " cannot start it: " + ex.getMessage(),
                "Start it with " + command + ", or set spark.aeron.python to a Python that has aeron-spark.",
                ex);
        }
    }

    private static String output(final Process process, final Runnable onTurn) throws IOException
    {
        final long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_S);
        try
        {
            while (process.isAlive())
            {
                onTurn.run();
                if (System.nanoTime() - deadline >= 0)
                {
                    throw new SetupError(
                        "waited " + START_S + " s for the start of this machine's node", "See 'aeron-spark doctor'.");
                }
                LockSupport.parkNanos(POLL_NS);
            }
            return new String(process.getInputStream().readAllBytes());
        }
        finally
        {
            process.destroy();
        }
    }

    private static ArchiveAddress embedded(final NodeRecord.Driver driver, final DirectRoute route)
    {
        return new ArchiveAddress(
            ArchiveAddress.EMBEDDED, driver.aeronDir(), LOCAL_CONTROL_CHANNEL, CONTROL_STREAM_ID, LOCAL_CONTROL_CHANNEL,
            "aeron:ipc", true, driver.archiveDir(), "", route.connectTimeoutNs());
    }

    private static ArchiveAddress named(final AeronUri uri, final DirectRoute route, final String aeronDir)
    {
        final String stream = uri.get("stream-id");
        final int streamId = stream == null ? CONTROL_STREAM_ID : Integer.parseInt(stream);
        final String alias = uri.get("alias");
        final String control = uri.without("stream-id").without("alias").toString();
        final String credentials = route.credentialsFile() == null ? "" : route.credentialsFile();
        if ("ipc".equals(uri.media()))
        {
            return new ArchiveAddress(
                alias == null ? "ipc:" + streamId : alias, aeronDir, control, streamId, LOCAL_CONTROL_CHANNEL,
                "aeron:ipc", true, "", credentials, route.connectTimeoutNs());
        }
        final String endpoint = uri.get("endpoint") == null ? uri.get("control") : uri.get("endpoint");
        return new ArchiveAddress(
            alias == null ? HostPort.parse(endpoint).toString() : alias, aeronDir, control, streamId,
            localChannel(route.responseChannel(), endpoint), localChannel(route.replayChannel(), endpoint), false, "",
            credentials, route.connectTimeoutNs());
    }

    private static String localChannel(final String option, final String endpoint)
    {
        if ("response".equals(option))
        {
            // The archive's driver opens this port for response channels, because requests use the control port.
            final HostPort control = HostPort.parse(endpoint);
            return "aeron:udp?control-mode=response|control=" + new HostPort(control.host(), control.port() + 1);
        }
        return option == null ? "aeron:udp?endpoint=" + Hosts.facing(endpoint) + ":0" : option;
    }

    private static void refuseArchiveStreams(final DirectRoute route, final List<ArchiveAddress> archives)
    {
        final AeronUri channel = AeronUri.parse(route.channel());
        for (final ArchiveAddress archive : archives)
        {
            if (archive.controlStreamId() == route.streamId() &&
                channel.isSameStream(AeronUri.parse(archive.controlChannel())))
            {
                throw new OptionError(
                    "stream " + route.streamId() + " of " + channel + " is a control stream of an Aeron Archive (" +
                    archive.controlChannel() + "); data there would break the archive",
                    "Choose another streamId, for instance 1001");
            }
        }
    }
}

package io.aeronspark.spark.archive;

import io.aeronspark.spark.channel.HostPort;
import io.aeronspark.spark.error.SetupError;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.DatagramSocket;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;

/** This machine among others. */
public final class Hosts
{
    private Hosts()
    {
    }

    /** Return an identifier of this running machine or container: its name and boot id. */
    public static String identity()
    {
        try
        {
            return name() + " " + Files.readString(Path.of("/proc/sys/kernel/random/boot_id")).strip();
        }
        catch (final IOException ignored)
        {
            return name();
        }
    }

    /** Return this machine's name. */
    static String name()
    {
        try
        {
            return Files.readString(Path.of("/proc/sys/kernel/hostname")).strip();
        }
        catch (final IOException ignored)
        {
            return localAddress();
        }
    }

    /** Return this machine's address on the route to an endpoint, as in a channel, without sending a packet. */
    static String facing(final String endpoint)
    {
        final HostPort target = HostPort.parse(endpoint);
        try (DatagramSocket probe = new DatagramSocket())
        {
            final InetAddress address = InetAddress.getByName(target.host());
            probe.connect(new InetSocketAddress(address, target.port()));
            final InetAddress own = probe.getLocalAddress();
            final String text = own.getHostAddress();
            return own instanceof Inet6Address ? "[" + text + "]" : text;
        }
        catch (final UnknownHostException ex)
        {
            throw new SetupError(
                "the host name '" + target.host() + "' cannot be resolved to an address",
                "Correct the name, or add the host to this machine's name service.",
                ex);
        }
        catch (final IOException | UncheckedIOException ex)
        {
            throw new SetupError(
                "this machine has no route to the archive at " + endpoint + ": " + ex.getMessage(),
                "Correct the address, or set 'responseChannel' and 'replayChannel'.",
                ex);
        }
    }

    private static String localAddress()
    {
        try
        {
            return InetAddress.getLocalHost().getHostName();
        }
        catch (final UnknownHostException ignored)
        {
            return "localhost";
        }
    }
}

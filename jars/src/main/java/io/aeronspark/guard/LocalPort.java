package io.aeronspark.guard;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.channels.DatagramChannel;
import org.agrona.ErrorHandler;

/**
 * The local port of an endpoint's socket, which owners register for. The driver opens the socket after the endpoint was
 * constructed, so the port is read at its first use. Not thread-safe.
 */
final class LocalPort
{
    private int port;

    /** The port, or 0 if it cannot be read; the error then goes to {@code errorHandler}. */
    int of(final DatagramChannel channel, final ErrorHandler errorHandler)
    {
        if (0 == port)
        {
            try
            {
                port = ((InetSocketAddress)channel.getLocalAddress()).getPort();
            }
            catch (final IOException ex)
            {
                errorHandler.onError(ex);
            }
        }
        return port;
    }
}

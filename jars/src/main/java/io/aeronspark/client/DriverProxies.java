package io.aeronspark.client;

import io.aeron.Aeron;
import io.aeron.CncFileDescriptor;
import io.aeron.DriverProxy;
import java.io.File;
import java.nio.MappedByteBuffer;
import org.agrona.IoUtil;
import org.agrona.concurrent.ringbuffer.ManyToOneRingBuffer;

/** Makes proxies for commands to a client's media driver that stay usable after the client is closed. */
public final class DriverProxies
{
    private DriverProxies()
    {
    }

    /**
     * Make a proxy that sends commands in the name of {@code client}. Calls of one proxy need a lock around them.
     * <p>
     * It maps the driver's CnC file separately and never unmaps it: the client unmaps its own mapping when it is
     * closed, even while another thread writes a command, and the JVM would crash then. The collector frees the
     * mapping.
     */
    public static DriverProxy mapFor(final Aeron client)
    {
        return proxyOf(map(client.context().aeronDirectoryName()), client.clientId());
    }

    /**
     * Tell the driver in {@code aeronDirectory} that the client {@code clientId} is closed. For a client whose process
     * has ended without telling the driver, which would otherwise keep it for its client liveness timeout.
     */
    public static void closeClient(final String aeronDirectory, final long clientId)
    {
        final MappedByteBuffer cnc = map(aeronDirectory);
        try
        {
            proxyOf(cnc, clientId).clientClose();
        }
        finally
        {
            IoUtil.unmap(cnc);
        }
    }

    private static MappedByteBuffer map(final String aeronDirectory)
    {
        return IoUtil.mapExistingFile(
            new File(aeronDirectory, CncFileDescriptor.CNC_FILE), CncFileDescriptor.CNC_FILE);
    }

    private static DriverProxy proxyOf(final MappedByteBuffer cnc, final long clientId)
    {
        return new DriverProxy(
            new ManyToOneRingBuffer(
                CncFileDescriptor.createToDriverBuffer(cnc, CncFileDescriptor.createMetaDataBuffer(cnc))),
            clientId);
    }
}

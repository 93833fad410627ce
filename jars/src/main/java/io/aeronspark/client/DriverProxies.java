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
        final File file = new File(client.context().aeronDirectoryName(), CncFileDescriptor.CNC_FILE);
        final MappedByteBuffer cnc = IoUtil.mapExistingFile(file, CncFileDescriptor.CNC_FILE);
        return new DriverProxy(
            new ManyToOneRingBuffer(
                CncFileDescriptor.createToDriverBuffer(cnc, CncFileDescriptor.createMetaDataBuffer(cnc))),
            client.clientId());
    }
}

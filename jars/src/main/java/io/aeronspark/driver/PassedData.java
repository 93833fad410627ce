package io.aeronspark.driver;

import static io.aeron.driver.status.SystemCounterDescriptor.BYTES_RECEIVED;
import static io.aeron.driver.status.SystemCounterDescriptor.BYTES_SENT;
import static io.aeron.driver.status.SystemCounterDescriptor.HEARTBEATS_RECEIVED;
import static io.aeron.driver.status.SystemCounterDescriptor.HEARTBEATS_SENT;
import static io.aeron.protocol.DataHeaderFlyweight.HEADER_LENGTH;

import io.aeron.driver.MediaDriver;
import io.aeron.driver.status.SystemCounterDescriptor;
import java.util.function.LongSupplier;
import org.agrona.concurrent.status.AtomicCounter;

/**
 * How many bytes of data a driver has sent to and received from networks, without the heartbeats of its publications,
 * which pass all the time. For the driver's own threads: the context has its counters after the launch.
 */
public final class PassedData implements LongSupplier
{
    private final MediaDriver.Context context;
    private AtomicCounter bytesSent;
    private AtomicCounter bytesReceived;
    private AtomicCounter heartbeatsSent;
    private AtomicCounter heartbeatsReceived;

    /** Of the driver of this context. */
    public PassedData(final MediaDriver.Context context)
    {
        this.context = context;
    }

    @Override
    public long getAsLong()
    {
        if (bytesSent == null)
        {
            bytesReceived = counter(BYTES_RECEIVED);
            heartbeatsSent = counter(HEARTBEATS_SENT);
            heartbeatsReceived = counter(HEARTBEATS_RECEIVED);
            bytesSent = counter(BYTES_SENT);
        }
        final long heartbeats = heartbeatsSent.getWeak() + heartbeatsReceived.getWeak();
        return bytesSent.getWeak() + bytesReceived.getWeak() - heartbeats * HEADER_LENGTH;
    }

    private AtomicCounter counter(final SystemCounterDescriptor descriptor)
    {
        return context.systemCounters().get(descriptor);
    }
}

package io.aeronspark.driver;

import static io.aeron.driver.status.SystemCounterDescriptor.BYTES_RECEIVED;
import static io.aeron.driver.status.SystemCounterDescriptor.BYTES_SENT;
import static io.aeron.driver.status.SystemCounterDescriptor.HEARTBEATS_RECEIVED;
import static io.aeron.driver.status.SystemCounterDescriptor.HEARTBEATS_SENT;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.aeron.driver.MediaDriver;
import io.aeron.driver.status.SystemCounters;
import java.nio.ByteBuffer;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.CountersManager;
import org.junit.jupiter.api.Test;

class PassedDataTest
{
    private static final int HEARTBEAT_BYTES = 32;
    private static final int BUFFER_BYTES = 1 << 20;

    private final SystemCounters counters = new SystemCounters(new CountersManager(
        new UnsafeBuffer(ByteBuffer.allocateDirect(4 * BUFFER_BYTES)),
        new UnsafeBuffer(ByteBuffer.allocateDirect(BUFFER_BYTES))));
    private final MediaDriver.Context context = new MediaDriver.Context();
    private final PassedData data = new PassedData(context);

    @Test
    void countsBytesInBothDirectionsWithoutHeartbeats()
    {
        context.systemCounters(counters); // as the launch of a driver does, after the idle strategy was made
        assertEquals(0, data.getAsLong());
        counters.get(BYTES_SENT).getAndAdd(96 + HEARTBEAT_BYTES);
        counters.get(HEARTBEATS_SENT).increment();
        assertEquals(96, data.getAsLong());
        counters.get(BYTES_RECEIVED).getAndAdd(64 + 2 * HEARTBEAT_BYTES);
        counters.get(HEARTBEATS_RECEIVED).getAndAdd(2);
        assertEquals(160, data.getAsLong());
    }
}

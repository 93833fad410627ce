package io.aeronspark.guard;

import static java.nio.ByteOrder.LITTLE_ENDIAN;

import io.aeron.driver.MediaDriver;
import java.lang.invoke.VarHandle;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.status.CountersReader;

/**
 * The secrets that servers have registered for the cookies of their handshakes. A server registers a secret by an Aeron
 * counter of type {@value #COUNTER_TYPE_ID}. The driver frees the counter when the server closes it or ends. The key of
 * the counter, with little-endian numbers:
 * <pre>
 *   0  int32     layout, 1
 *   4  int32     local port of the endpoint
 *   8  int32     stream id
 *  12  byte[32]  secret
 * </pre>
 * Times are nanoseconds of one clock. Used by the receiver thread alone.
 */
final class CookieRegistry
{
    /** Counter type of a registration. */
    static final int COUNTER_TYPE_ID = 16726;
    private static final int LAYOUT = 1;
    private static final int PORT_OFFSET = 4;
    private static final int STREAM_OFFSET = 8;
    private static final int SECRET_OFFSET = 12;
    private static final int SECRET_LENGTH = 32;
    private static final long REFRESH_INTERVAL_NS = TimeUnit.MILLISECONDS.toNanos(250);

    /** The secret is in hexadecimal. */
    private record Registration(int port, int streamId, String secret)
    {
    }

    private record Key(int port, int streamId)
    {
    }

    private final DirectBuffer metaData;
    private Map<Registration, HelloCookies> registrations = Map.of();
    private Map<Key, HelloCookies> cookies = Map.of();
    private volatile boolean isChanged = true;
    private long refreshedNs;

    CookieRegistry(final MediaDriver.Context context, final long nowNs)
    {
        metaData = context.countersMetaDataBuffer();
        refreshedNs = nowNs;
    }

    /** Let the next {@link #find} read the counters again. For any thread. */
    void refreshAtNextUse()
    {
        isChanged = true;
    }

    /** The cookies of the server of this stream at the endpoint with this local port; null if no secret is registered. */
    HelloCookies find(final int port, final int streamId, final long nowNs)
    {
        if (isChanged || nowNs - refreshedNs >= REFRESH_INTERVAL_NS)
        {
            isChanged = false;
            refreshedNs = nowNs;
            refresh();
        }
        return cookies.isEmpty() ? null : cookies.get(new Key(port, streamId));
    }

    /** Read the registrations. Cookies of a secret that is still registered stay, because they remember the spent ones. */
    private void refresh()
    {
        final Map<Registration, HelloCookies> found = new HashMap<>();
        final Map<Key, HelloCookies> byStream = new HashMap<>();
        for (int offset = 0; offset < metaData.capacity(); offset += CountersReader.METADATA_LENGTH)
        {
            final int state = metaData.getInt(offset);
            VarHandle.acquireFence(); // the driver writes a counter's key before its state
            if (CountersReader.RECORD_UNUSED == state)
            {
                break;
            }
            final int key = offset + CountersReader.KEY_OFFSET;
            if (CountersReader.RECORD_ALLOCATED == state &&
                COUNTER_TYPE_ID == metaData.getInt(offset + CountersReader.TYPE_ID_OFFSET) && LAYOUT == word(key))
            {
                final byte[] secret = new byte[SECRET_LENGTH];
                metaData.getBytes(key + SECRET_OFFSET, secret);
                final Registration registration = new Registration(
                    word(key + PORT_OFFSET), word(key + STREAM_OFFSET), HexFormat.of().formatHex(secret));
                final HelloCookies known = registrations.get(registration);
                final HelloCookies current = null != known ? known : new HelloCookies(secret);
                found.put(registration, current);
                byStream.put(new Key(registration.port, registration.streamId), current);
            }
        }
        registrations = found;
        cookies = byStream;
    }

    private int word(final int offset)
    {
        return metaData.getInt(offset, LITTLE_ENDIAN);
    }
}

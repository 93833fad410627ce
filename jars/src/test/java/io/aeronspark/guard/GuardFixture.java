package io.aeronspark.guard;

import static java.nio.ByteOrder.LITTLE_ENDIAN;

import io.aeron.ChannelUri;
import io.aeron.driver.MediaDriver;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.AtomicCounter;
import org.agrona.concurrent.status.CountersManager;

/** The counters of a driver in memory: drops are read from them, and owners are registered in them. */
final class GuardFixture
{
    static final int LOCAL_PORT = 20121;
    private static final int OWNER_LAYOUT = 1;

    final DropCounters drops;
    private final CountersManager counters;
    private final MediaDriver.Context context;

    GuardFixture(final String direction)
    {
        final UnsafeBuffer metaData = new UnsafeBuffer(ByteBuffer.allocateDirect(64 * 1024));
        final UnsafeBuffer values = new UnsafeBuffer(ByteBuffer.allocateDirect(16 * 1024));
        counters = new CountersManager(metaData, values, StandardCharsets.US_ASCII);
        context = new MediaDriver.Context()
            .countersMetaDataBuffer(metaData).countersValuesBuffer(values).countersManager(counters);
        drops = new DropCounters(direction, context);
    }

    /** Rules of a channel with these parameters, separated by "|". */
    static GuardRules rules(final String parameters)
    {
        return GuardRules.of(ChannelUri.parse("aeron:udp?endpoint=127.0.0.1:1|" + parameters), new Properties());
    }

    /** A registry at the time 0. */
    OwnerRegistry owners(final int direction)
    {
        return new OwnerRegistry(direction, context, 0);
    }

    /** Register an owner with any port. */
    AtomicCounter register(final int direction, final int sessionId, final int streamId, final String address)
    {
        return register(OWNER_LAYOUT, direction, sessionId, streamId, address, 0);
    }

    /** Register an owner by a counter of the layout in docs/driver-guard.md. */
    AtomicCounter register(
        final int layout,
        final int direction,
        final int sessionId,
        final int streamId,
        final String address,
        final int port)
    {
        final byte[] bytes = bytesOf(address);
        return counters.newCounter("owner", OwnerRegistry.COUNTER_TYPE_ID, key ->
        {
            key.putInt(0, layout, LITTLE_ENDIAN);
            key.putInt(4, direction, LITTLE_ENDIAN);
            key.putInt(8, LOCAL_PORT, LITTLE_ENDIAN);
            key.putInt(12, sessionId, LITTLE_ENDIAN);
            key.putInt(16, streamId, LITTLE_ENDIAN);
            key.putInt(20, port, LITTLE_ENDIAN);
            if (4 == bytes.length)
            {
                key.putShort(34, (short)0xFFFF);
            }
            key.putBytes(40 - bytes.length, bytes);
        });
    }

    /** A registry of secrets at the time 0. */
    CookieRegistry cookies()
    {
        return new CookieRegistry(context, 0);
    }

    /** Register the secret of 32 equal bytes for a stream at the local port. */
    AtomicCounter registerSecret(final int layout, final int streamId, final byte secret)
    {
        return counters.newCounter("cookies", CookieRegistry.COUNTER_TYPE_ID, key ->
        {
            key.putInt(0, layout, LITTLE_ENDIAN);
            key.putInt(4, LOCAL_PORT, LITTLE_ENDIAN);
            key.putInt(8, streamId, LITTLE_ENDIAN);
            key.setMemory(12, 32, secret);
        });
    }

    /** Dropped frames by the label of their reason, without those that are 0. */
    Map<String, Long> drops()
    {
        final Map<String, Long> counted = new LinkedHashMap<>();
        counters.forEach((counterId, typeId, key, label) ->
        {
            final long value = counters.getCounterValue(counterId);
            if (typeId == DropCounters.COUNTER_TYPE_ID && value > 0)
            {
                counted.put(label.substring(label.indexOf(": ") + 2), value);
            }
        });
        return counted;
    }

    private static byte[] bytesOf(final String address)
    {
        try
        {
            return InetAddress.getByName(address).getAddress();
        }
        catch (final UnknownHostException ex)
        {
            throw new IllegalArgumentException(ex);
        }
    }
}

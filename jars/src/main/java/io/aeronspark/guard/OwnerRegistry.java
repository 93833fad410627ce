package io.aeronspark.guard;

import static java.nio.ByteOrder.LITTLE_ENDIAN;

import io.aeron.driver.MediaDriver;
import java.lang.invoke.VarHandle;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.status.CountersReader;

/**
 * The registered owners of sessions. A client of this driver registers one by allocating an Aeron counter of type
 * {@value #COUNTER_TYPE_ID}, which the driver frees when it is closed or its client dies. So the program that decides
 * about owners need not be in the driver's process. The key of the counter, with little-endian numbers:
 * <pre>
 *   0  int32     layout, 1
 *   4  int32     direction: 1 if the session is received, 2 if it is published
 *   8  int32     local port of the endpoint
 *  12  int32     session id
 *  16  int32     stream id
 *  20  int32     the owner's port, 0 for any
 *  24  byte[16]  the owner's address, an IPv4 address mapped into IPv6
 * </pre>
 * Several counters of one session are several owners. Times are nanoseconds of one clock. Not thread-safe: the receiver
 * and the sender thread have one each.
 */
final class OwnerRegistry
{
    /** Counter type of a registration. */
    static final int COUNTER_TYPE_ID = 16724;
    static final int RECEIVED = 1;
    static final int PUBLISHED = 2;
    private static final int LAYOUT = 1;
    private static final int DIRECTION_OFFSET = 4;
    private static final int PORT_OFFSET = 8;
    private static final int SESSION_OFFSET = 12;
    private static final int STREAM_OFFSET = 16;
    private static final int OWNER_PORT_OFFSET = 20;
    private static final int ADDRESS_OFFSET = 24;
    private static final int ADDRESS_LENGTH = 16;
    /** Time after which the counters are read again: an owner that was removed is known for so long. */
    private static final long REFRESH_INTERVAL_NS = TimeUnit.MILLISECONDS.toNanos(10);
    /** The same for a session without an owner that it needs: soon, but not for each packet of a flood. */
    private static final long MISS_INTERVAL_NS = TimeUnit.MILLISECONDS.toNanos(1);

    /** How an address relates to the owners of a session. */
    enum Ownership
    {
        /** The session has no registered owner. */
        NONE,
        /** The address is a registered owner. */
        OWNER,
        /** Only other addresses are registered. */
        OTHER
    }

    private record Key(int port, int sessionId, int streamId)
    {
    }

    /** An owner, and the next one of the same session. {@code port} is 0 for any. */
    private record Owner(InetAddress address, int port, Owner next)
    {
    }

    private final DirectBuffer metaData;
    private final int direction;
    private Map<Key, Owner> owners = Map.of();
    private long fingerprint;
    private long refreshedNs;

    OwnerRegistry(final int direction, final MediaDriver.Context context, final long nowNs)
    {
        this.direction = direction;
        metaData = context.countersMetaDataBuffer();
        refreshAtNextUse(nowNs);
    }

    /** Read the counters at the next {@link #find}, so that it knows all owners that were registered before. */
    void refreshAtNextUse(final long nowNs)
    {
        refreshedNs = nowNs - REFRESH_INTERVAL_NS;
    }

    /**
     * Look up how {@code source} relates to the owners of a session of the endpoint with this local port.
     *
     * @param isOpen whether the stream needs no owner. The counters are then not read again just because the session
     *               has none.
     */
    Ownership find(
        final int port,
        final int sessionId,
        final int streamId,
        final InetSocketAddress source,
        final long nowNs,
        final boolean isOpen)
    {
        if (nowNs - refreshedNs >= REFRESH_INTERVAL_NS)
        {
            refresh(nowNs);
        }
        final Key key = new Key(port, sessionId, streamId);
        final Ownership known = find(key, source);
        final boolean isSufficient = Ownership.OWNER == known || isOpen && Ownership.NONE == known;
        if (isSufficient || nowNs - refreshedNs < MISS_INTERVAL_NS)
        {
            return known;
        }
        refresh(nowNs);
        return find(key, source);
    }

    private Ownership find(final Key key, final InetSocketAddress source)
    {
        final Owner first = owners.get(key);
        for (Owner owner = first; null != owner; owner = owner.next)
        {
            if (owner.address.equals(source.getAddress()) && (0 == owner.port || owner.port == source.getPort()))
            {
                return Ownership.OWNER;
            }
        }
        return null == first ? Ownership.NONE : Ownership.OTHER;
    }

    /** Compare the counters with those of the last reading, and read the owners only after a change. */
    private void refresh(final long nowNs)
    {
        refreshedNs = nowNs;
        long hash = 1;
        for (int offset = 0; offset < metaData.capacity(); offset += CountersReader.METADATA_LENGTH)
        {
            final int state = state(offset);
            if (CountersReader.RECORD_UNUSED == state)
            {
                break;
            }
            if (isRegistration(offset, state))
            {
                hash = 31 * (31 * hash + offset) + metaData.getLong(offset + CountersReader.KEY_OFFSET + PORT_OFFSET);
                hash = 31 * hash + metaData.getLong(offset + CountersReader.KEY_OFFSET + STREAM_OFFSET);
                hash = 31 * hash + metaData.getLong(offset + CountersReader.KEY_OFFSET + ADDRESS_OFFSET);
                hash = 31 * hash + metaData.getLong(offset + CountersReader.KEY_OFFSET + ADDRESS_OFFSET + Long.BYTES);
            }
        }
        if (hash != fingerprint)
        {
            fingerprint = hash;
            readOwners();
        }
    }

    private void readOwners()
    {
        final Map<Key, Owner> found = new HashMap<>();
        for (int offset = 0; offset < metaData.capacity(); offset += CountersReader.METADATA_LENGTH)
        {
            final int state = state(offset);
            if (CountersReader.RECORD_UNUSED == state)
            {
                break;
            }
            if (isRegistration(offset, state))
            {
                final int at = offset + CountersReader.KEY_OFFSET;
                final Key key = new Key(word(at + PORT_OFFSET), word(at + SESSION_OFFSET), word(at + STREAM_OFFSET));
                found.put(key, new Owner(address(at + ADDRESS_OFFSET), word(at + OWNER_PORT_OFFSET), found.get(key)));
            }
        }
        owners = found;
    }

    private int state(final int offset)
    {
        final int state = metaData.getInt(offset);
        VarHandle.acquireFence(); // the driver writes a counter's key before its state
        return state;
    }

    private boolean isRegistration(final int offset, final int state)
    {
        final int key = offset + CountersReader.KEY_OFFSET;
        return CountersReader.RECORD_ALLOCATED == state &&
            COUNTER_TYPE_ID == metaData.getInt(offset + CountersReader.TYPE_ID_OFFSET) &&
            LAYOUT == word(key) && direction == word(key + DIRECTION_OFFSET);
    }

    private int word(final int offset)
    {
        return metaData.getInt(offset, LITTLE_ENDIAN);
    }

    private InetAddress address(final int offset)
    {
        final byte[] bytes = new byte[ADDRESS_LENGTH];
        metaData.getBytes(offset, bytes);
        try
        {
            return InetAddress.getByAddress(bytes); // returns an IPv4 address for an IPv4-mapped one
        }
        catch (final UnknownHostException ex)
        {
            throw new IllegalStateException(ex);
        }
    }
}

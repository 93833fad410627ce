package io.aeronspark.guard;

import static java.nio.ByteOrder.LITTLE_ENDIAN;

import io.aeron.driver.MediaDriver;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.status.CountersReader;

/**
 * Who owns which session, as clients of this driver registered it: by an Aeron counter of type {@value #COUNTER_TYPE_ID}, which the
 * driver frees when it is closed or when its client dies. So the server may be in this process or another. The counter's key, little-endian:
 * <pre>
 *   0  int32     layout, 1
 *   4  int32     direction: 1 the session is received, 2 it is published
 *   8  int32     local port of the endpoint
 *  12  int32     session id
 *  16  int32     stream id
 *  20  int32     the owner's port, 0 for any
 *  24  byte[16]  the owner's address, an IPv4 address mapped into IPv6
 * </pre>
 * Several counters of one session stand for several owners. Not thread-safe: each of the driver's threads has one of its own.
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
    /** How long an owner that was removed may still be known. */
    private static final long REFRESH_NS = TimeUnit.MILLISECONDS.toNanos(10);
    /** A session that is not known yet is looked for again, but not for every packet of a flood. */
    private static final long MISS_NS = TimeUnit.MILLISECONDS.toNanos(1);

    /** What the guard found. */
    enum Claim
    {
        /** Nobody is registered. */
        NONE,
        /** This address is. */
        OWNER,
        /** Somebody else is. */
        FOREIGN
    }

    private record Key(int port, int sessionId, int streamId)
    {
    }

    private record Owner(InetAddress address, int port, Owner next)
    {
    }

    private final DirectBuffer metaData;
    private final int direction;
    private Map<Key, Owner> owners = Map.of();
    private long fingerprint;
    private long readNs;

    OwnerRegistry(final int direction, final MediaDriver.Context context, final long nowNs)
    {
        this.direction = direction;
        metaData = context.countersMetaDataBuffer();
        renew(nowNs);
    }

    /** Look anew at the next claim: what was registered before this is known from now on. */
    void renew(final long nowNs)
    {
        readNs = nowNs - REFRESH_NS;
    }

    /**
     * Tell whether this address may speak for the session on the endpoint with this local port. Where {@code anybody} may as long as nobody is
     * registered, as on a stream for strangers, that nobody is known is believed for as long as that somebody is.
     */
    Claim claim(
        final int port, final int sessionId, final int streamId, final InetSocketAddress source, final long nowNs, final boolean anybody)
    {
        if (nowNs - readNs >= REFRESH_NS)
        {
            read(nowNs);
        }
        final Key key = new Key(port, sessionId, streamId);
        Claim claim = claim(key, source);
        if (Claim.OWNER != claim && !(anybody && Claim.NONE == claim) && nowNs - readNs >= MISS_NS)
        {
            read(nowNs);
            claim = claim(key, source);
        }
        return claim;
    }

    private Claim claim(final Key key, final InetSocketAddress source)
    {
        final Owner first = owners.get(key);
        for (Owner owner = first; null != owner; owner = owner.next)
        {
            if (owner.address.equals(source.getAddress()) && (0 == owner.port || owner.port == source.getPort()))
            {
                return Claim.OWNER;
            }
        }
        return null == first ? Claim.NONE : Claim.FOREIGN;
    }

    private void read(final long nowNs)
    {
        readNs = nowNs;
        long seen = 1;
        for (int offset = 0; offset < metaData.capacity(); offset += CountersReader.METADATA_LENGTH)
        {
            final int state = state(offset);
            if (CountersReader.RECORD_UNUSED == state)
            {
                break;
            }
            if (isRegistration(offset, state))
            {
                seen = 31 * (31 * seen + offset) + metaData.getLong(offset + CountersReader.KEY_OFFSET + PORT_OFFSET);
                seen = 31 * seen + metaData.getLong(offset + CountersReader.KEY_OFFSET + STREAM_OFFSET);
                seen = 31 * seen + metaData.getLong(offset + CountersReader.KEY_OFFSET + ADDRESS_OFFSET);
                seen = 31 * seen + metaData.getLong(offset + CountersReader.KEY_OFFSET + ADDRESS_OFFSET + Long.BYTES);
            }
        }
        if (seen != fingerprint)
        {
            fingerprint = seen;
            parse();
        }
    }

    private void parse()
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
        java.lang.invoke.VarHandle.acquireFence();
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
            return InetAddress.getByAddress(bytes); // an IPv4-mapped one becomes IPv4
        }
        catch (final UnknownHostException ex)
        {
            throw new IllegalStateException(ex);
        }
    }
}

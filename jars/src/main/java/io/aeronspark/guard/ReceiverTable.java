package io.aeronspark.guard;

import io.aeronspark.guard.DropCounters.Reason;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.agrona.collections.Hashing;
import org.agrona.collections.Long2LongCounterMap;

/**
 * The receivers a sending endpoint listens to. Each is an address with a receiver id, and is forgotten when it has been silent as long as Aeron
 * forgets a dynamic destination. With response channels a publication has one peer: the first address that speaks for it.
 */
final class ReceiverTable
{
    private static final long IDLE_NS = TimeUnit.SECONDS.toNanos(5);
    private static final long SWEEP_NS = TimeUnit.MILLISECONDS.toNanos(250);

    private record Peer(InetSocketAddress address, long receiverId)
    {
    }

    private final GuardRules rules;
    private final RateLimiter rates;
    private final boolean isOnePeerEach;
    private final Map<Peer, long[]> lastNs = new HashMap<>();
    private final Map<InetSocketAddress, long[]> addresses = new HashMap<>();
    private final Map<Long, InetSocketAddress> pinned = new HashMap<>();
    private final Long2LongCounterMap perSource = new Long2LongCounterMap(0);
    private long sweptNs;

    ReceiverTable(final GuardRules rules, final boolean isOnePeerEach, final long nowNs)
    {
        this.rules = rules;
        this.isOnePeerEach = isOnePeerEach;
        rates = new RateLimiter(rules, nowNs);
        sweptNs = nowNs;
    }

    /** Whether this address has introduced itself lately, to this publication where each has one peer. */
    boolean isKnown(final int sessionId, final int streamId, final InetSocketAddress address, final long nowNs)
    {
        sweep(nowNs);
        return isOnePeerEach ?
            address.equals(pinned.get(Hashing.compoundKey(sessionId, streamId))) : addresses.containsKey(address);
    }

    /** Let a receiver in, or keep it; null, or why not. */
    Reason introduce(
        final int sessionId, final int streamId, final InetSocketAddress address, final long receiverId, final long nowNs)
    {
        sweep(nowNs);
        final long publication = Hashing.compoundKey(sessionId, streamId);
        final InetSocketAddress pin = isOnePeerEach ? pinned.get(publication) : null;
        if (null != pin && !pin.equals(address))
        {
            return Reason.FOREIGN;
        }
        final Peer peer = new Peer(address, receiverId);
        final long[] seen = lastNs.get(peer);
        if (null == seen)
        {
            final Reason refused = refusal(address, nowNs);
            if (null != refused)
            {
                return refused;
            }
            lastNs.put(peer, new long[]{nowNs});
            perSource.incrementAndGet(NetworkFilter.sourceOf(address.getAddress()));
        }
        else
        {
            seen[0] = nowNs;
        }
        addresses.computeIfAbsent(address, key -> new long[1])[0] = nowNs;
        if (isOnePeerEach && null == pin)
        {
            pinned.put(publication, address);
        }
        return null;
    }

    /** The publication is gone. */
    void forget(final int sessionId, final int streamId)
    {
        pinned.remove(Hashing.compoundKey(sessionId, streamId));
    }

    private Reason refusal(final InetSocketAddress address, final long nowNs)
    {
        final long source = NetworkFilter.sourceOf(address.getAddress());
        if (!rates.take(source, nowNs))
        {
            return Reason.RATE;
        }
        if (lastNs.size() >= rules.destinations())
        {
            return Reason.TOTAL;
        }
        return perSource.get(source) >= rules.destinationsPerSource() ? Reason.SOURCE : null;
    }

    private void sweep(final long nowNs)
    {
        if (nowNs - sweptNs < SWEEP_NS)
        {
            return;
        }
        sweptNs = nowNs;
        for (final Iterator<Map.Entry<Peer, long[]>> peers = lastNs.entrySet().iterator(); peers.hasNext();)
        {
            final Map.Entry<Peer, long[]> peer = peers.next();
            if (nowNs - peer.getValue()[0] > IDLE_NS)
            {
                peers.remove();
                perSource.decrementAndGet(NetworkFilter.sourceOf(peer.getKey().address.getAddress()));
            }
        }
        addresses.values().removeIf(seen -> nowNs - seen[0] > IDLE_NS);
        pinned.values().removeIf(address -> !addresses.containsKey(address));
    }
}

package io.aeronspark.guard;

import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.agrona.collections.Hashing;
import org.agrona.collections.Long2LongCounterMap;

/**
 * The receivers that a sending endpoint listens to. A receiver is an address with a receiver id. It is forgotten after
 * 5 s without a status message, as Aeron forgets a dynamic destination.
 * <p>
 * A response publication has one receiver: the first address that introduces itself. Another address of the
 * publication's registered owner may take its place as long as the first one only requests the set-up: it has no image,
 * and its subscription was perhaps opened again with another port. Later that is possible only after a silence, because
 * a receiver with an image sends a status message every 200 ms.
 * <p>
 * Times are nanoseconds of one clock. Used by the sender thread alone.
 */
final class ReceiverTable
{
    private static final long IDLE_NS = TimeUnit.SECONDS.toNanos(5);
    private static final long REPLACE_NS = TimeUnit.SECONDS.toNanos(1);
    private static final long SWEEP_INTERVAL_NS = TimeUnit.MILLISECONDS.toNanos(250);

    private record Receiver(InetSocketAddress address, long receiverId)
    {
    }

    /** The one receiver of a response publication. */
    private static final class Peer
    {
        final InetSocketAddress address;
        private boolean hasImage;
        private long lastNs;

        Peer(final InetSocketAddress address)
        {
            this.address = address;
        }

        void onStatusMessage(final boolean requestsSetUp, final long nowNs)
        {
            hasImage |= !requestsSetUp;
            lastNs = nowNs;
        }

        boolean isReplaceable(final long nowNs)
        {
            return !hasImage || nowNs - lastNs > REPLACE_NS;
        }
    }

    private final GuardRules rules;
    private final RateLimiter rates;
    private final boolean isResponse;
    // The values are arrays of one element, the time of the last status message, so that none allocates.
    private final Map<Receiver, long[]> receivers = new HashMap<>();
    private final Map<InetSocketAddress, long[]> addresses = new HashMap<>();
    private final Map<Long, Peer> peerOfPublication = new HashMap<>();
    private final Long2LongCounterMap countBySource = new Long2LongCounterMap(0);
    private long sweptNs;

    /** {@code isResponse}: whether the endpoint's publications are response publications. */
    ReceiverTable(final GuardRules rules, final boolean isResponse, final long nowNs)
    {
        this.rules = rules;
        this.isResponse = isResponse;
        rates = new RateLimiter(rules, nowNs);
        sweptNs = nowNs;
    }

    /** Whether a receiver at this address has introduced itself; for a response publication, to this publication. */
    boolean isKnown(final int sessionId, final int streamId, final InetSocketAddress address, final long nowNs)
    {
        sweep(nowNs);
        if (isResponse)
        {
            final Peer peer = peerOfPublication.get(Hashing.compoundKey(sessionId, streamId));
            return null != peer && peer.address.equals(address);
        }
        return addresses.containsKey(address);
    }

    /**
     * Handle a status message: admit a new receiver or keep a known one.
     *
     * @param requestsSetUp whether the message has the set-up flag, so that its receiver has no image.
     * @param mayReplace    whether the receiver may take the place of a response publication's present one.
     * @return null, or why the receiver is refused.
     */
    DropReason introduce(
        final int sessionId,
        final int streamId,
        final InetSocketAddress address,
        final long receiverId,
        final boolean requestsSetUp,
        final boolean mayReplace,
        final long nowNs)
    {
        sweep(nowNs);
        final long publication = Hashing.compoundKey(sessionId, streamId);
        final Peer current = isResponse ? peerOfPublication.get(publication) : null;
        final boolean isOther = null != current && !current.address.equals(address);
        if (isOther && !(mayReplace && current.isReplaceable(nowNs)))
        {
            return DropReason.FOREIGN;
        }
        final Receiver receiver = new Receiver(address, receiverId);
        final long[] lastNs = receivers.get(receiver);
        if (null == lastNs)
        {
            final DropReason refusal = refusalOf(address, nowNs);
            if (null != refusal)
            {
                return refusal;
            }
            receivers.put(receiver, new long[]{nowNs});
            countBySource.incrementAndGet(NetworkFilter.sourceOf(address.getAddress()));
        }
        else
        {
            lastNs[0] = nowNs;
        }
        addresses.computeIfAbsent(address, key -> new long[1])[0] = nowNs;
        if (isResponse)
        {
            final Peer peer = null == current || isOther ? new Peer(address) : current;
            peer.onStatusMessage(requestsSetUp, nowNs);
            peerOfPublication.put(publication, peer);
        }
        return null;
    }

    /** The publication was closed: another with its session id may have another receiver. */
    void forgetPublication(final int sessionId, final int streamId)
    {
        peerOfPublication.remove(Hashing.compoundKey(sessionId, streamId));
    }

    private DropReason refusalOf(final InetSocketAddress address, final long nowNs)
    {
        final long source = NetworkFilter.sourceOf(address.getAddress());
        if (!rates.tryIntroduction(source, nowNs))
        {
            return DropReason.RATE;
        }
        if (receivers.size() >= rules.destinations())
        {
            return DropReason.TOTAL;
        }
        return countBySource.get(source) >= rules.destinationsPerSource() ? DropReason.SOURCE : null;
    }

    private void sweep(final long nowNs)
    {
        if (nowNs - sweptNs < SWEEP_INTERVAL_NS)
        {
            return;
        }
        sweptNs = nowNs;
        for (final Iterator<Map.Entry<Receiver, long[]>> all = receivers.entrySet().iterator(); all.hasNext();)
        {
            final Map.Entry<Receiver, long[]> one = all.next();
            if (nowNs - one.getValue()[0] > IDLE_NS)
            {
                all.remove();
                countBySource.decrementAndGet(NetworkFilter.sourceOf(one.getKey().address.getAddress()));
            }
        }
        addresses.values().removeIf(lastNs -> nowNs - lastNs[0] > IDLE_NS);
        peerOfPublication.values().removeIf(peer -> !addresses.containsKey(peer.address));
    }
}

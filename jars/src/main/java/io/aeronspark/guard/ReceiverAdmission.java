package io.aeronspark.guard;

import io.aeron.protocol.StatusMessageFlyweight;
import io.aeronspark.guard.OwnerRegistry.Ownership;
import java.net.InetSocketAddress;
import org.agrona.collections.Hashing;
import org.agrona.collections.LongHashSet;

/**
 * Decides which frames of receivers a sending endpoint hands to the driver. A receiver introduces itself with a status
 * message; other frames pass only from receivers that have. Each refused frame is counted.
 * <p>
 * Used by the sender thread alone. {@code localPort} is the port of the endpoint, for which owners are registered;
 * {@code isConnected} says that the kernel delivers only datagrams of the one receiver, so that addresses and owners
 * need no check; times are nanoseconds of one clock.
 */
final class ReceiverAdmission
{
    private final GuardRules rules;
    private final DropCounters drops;
    private final OwnerRegistry owners;
    private final ReceiverTable receivers;
    private final LongHashSet publications = new LongHashSet();

    ReceiverAdmission(
        final GuardRules rules, final DropCounters drops, final OwnerRegistry owners, final ReceiverTable receivers)
    {
        this.rules = rules;
        this.drops = drops;
        this.owners = owners;
        this.receivers = receivers;
    }

    /** A program registers the owner first and then adds the publication, so the registry is read again. */
    void addPublication(final int sessionId, final int streamId, final long nowNs)
    {
        publications.add(Hashing.compoundKey(sessionId, streamId));
        owners.refreshAtNextUse(nowNs);
    }

    void removePublication(final int sessionId, final int streamId)
    {
        publications.remove(Hashing.compoundKey(sessionId, streamId));
        receivers.forgetPublication(sessionId, streamId);
    }

    /** Whether to take a status message, which introduces its receiver. */
    boolean permitsStatusMessage(
        final StatusMessageFlyweight message,
        final InetSocketAddress source,
        final int localPort,
        final boolean isConnected,
        final long nowNs)
    {
        if (message.receiverWindowLength() < 0 || message.consumptionTermOffset() < 0)
        {
            return drops.reject(DropReason.INVALID);
        }
        final int sessionId = message.sessionId();
        final int streamId = message.streamId();
        final boolean asksForAllPublications = rules.joining() && 0 == sessionId && 0 == streamId;
        final boolean isPermitted = asksForAllPublications ?
            isFromPermittedNetwork(source) :
            concernsPublicationOf(sessionId, streamId, source, localPort, isConnected, nowNs);
        if (!isPermitted || isConnected)
        {
            return isPermitted;
        }
        final boolean requestsSetUp = 0 != (message.flags() & StatusMessageFlyweight.SEND_SETUP_FLAG);
        final boolean mayReplace = requestsSetUp && Ownership.OWNER ==
            owners.find(localPort, sessionId, streamId, source, nowNs, rules.isOpen(streamId));
        final DropReason refusal = receivers.introduce(
            sessionId, streamId, source, message.receiverId(), requestsSetUp, mayReplace, nowNs);
        return null == refusal || drops.reject(refusal);
    }

    /** Whether to take a NAK, an error, an RTT measurement or a response set-up. */
    boolean permitsFrame(
        final int sessionId,
        final int streamId,
        final InetSocketAddress source,
        final int localPort,
        final boolean isConnected,
        final long nowNs)
    {
        return concernsPublicationOf(sessionId, streamId, source, localPort, isConnected, nowNs) &&
            (isConnected || receivers.isKnown(sessionId, streamId, source, nowNs) ||
                drops.reject(DropReason.FOREIGN));
    }

    /** Whether the session is published here, and the source may be its receiver. */
    private boolean concernsPublicationOf(
        final int sessionId,
        final int streamId,
        final InetSocketAddress source,
        final int localPort,
        final boolean isConnected,
        final long nowNs)
    {
        if (!isFromPermittedNetwork(source))
        {
            return false;
        }
        if (!publications.contains(Hashing.compoundKey(sessionId, streamId)))
        {
            return drops.reject(DropReason.UNWANTED);
        }
        if (isConnected)
        {
            return true;
        }
        final boolean isOpen = rules.isOpen(streamId);
        final Ownership ownership = owners.find(localPort, sessionId, streamId, source, nowNs, isOpen);
        if (Ownership.OTHER == ownership)
        {
            return drops.reject(DropReason.FOREIGN);
        }
        return Ownership.OWNER == ownership || isOpen || drops.reject(DropReason.UNOWNED);
    }

    private boolean isFromPermittedNetwork(final InetSocketAddress source)
    {
        return rules.networks().permits(source.getAddress()) || drops.reject(DropReason.NETWORK);
    }
}

package io.aeronspark.inbox;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;

/**
 * The subscriptions of an inbox. Any thread adds, finds and removes them; the polling thread polls them in turns. While
 * it sleeps, the thread of the {@link IdleInboxPoller} takes its place.
 */
final class PolledSubscriptions
{
    /** Time between two looks for the driver's responses. */
    private static final long RESPONSE_CHECK_INTERVAL_NS = TimeUnit.MILLISECONDS.toNanos(1);

    private final Map<Integer, InboxSubscription> byToken = new ConcurrentHashMap<>();
    private final ConcurrentLinkedQueue<InboxSubscription> added = new ConcurrentLinkedQueue<>();
    private volatile boolean hasRemoved;

    private final List<InboxSubscription> polled = new ArrayList<>();
    private int next;
    private long checkAtNs;

    /** Add a subscription that was opened. From any thread. */
    void add(final InboxSubscription subscription)
    {
        byToken.put(subscription.token, subscription);
        added.add(subscription);
    }

    /** The subscription, or null if it was removed or has failed. From any thread. */
    InboxSubscription find(final int token)
    {
        return byToken.get(token);
    }

    /** Close a subscription; a token without one is ignored. From any thread. */
    void remove(final int token)
    {
        final InboxSubscription subscription = byToken.remove(token);
        if (subscription != null)
        {
            hasRemoved = true;
            subscription.close();
        }
    }

    /** From any thread. */
    void removeAll()
    {
        for (final Integer token : byToken.keySet())
        {
            remove(token);
        }
    }

    /** Whether subscriptions were added or removed since the last {@link #update}. */
    boolean hasChanges()
    {
        return hasRemoved || !added.isEmpty();
    }

    /** Take over what other threads added and removed. On the polling thread, like all that follows. */
    void update()
    {
        if (hasRemoved)
        {
            hasRemoved = false;
            polled.removeIf(InboxSubscription::isClosed);
        }
        for (InboxSubscription one = added.poll(); one != null; one = added.poll())
        {
            polled.add(one);
            checkAtNs = 0;
        }
    }

    /**
     * Look for the driver's responses: remove refused subscriptions and report them to {@code events}, and open those
     * again that are due.
     */
    void checkResponses(final long nowNs, final InboxEvents events)
    {
        if (nowNs - checkAtNs <= 0)
        {
            return;
        }
        checkAtNs = nowNs + RESPONSE_CHECK_INTERVAL_NS;
        for (final InboxSubscription subscription : polled)
        {
            final String refusal = subscription.refusal();
            if (refusal != null && !subscription.isClosed())
            {
                remove(subscription.token);
                events.add(new InboxEvent(InboxRecords.SUBSCRIPTION_FAILED, subscription, null, 0, refusal));
            }
            subscription.reopenIfDue(nowNs);
        }
    }

    /** Write messages as records until the records are full or each subscription had its turn. */
    void poll()
    {
        final int count = polled.size();
        for (int i = 0; i < count; i++)
        {
            next = next + 1 >= count ? 0 : next + 1;
            final InboxSubscription subscription = polled.get(next);
            if (!subscription.isPaused && !subscription.isClosed() && subscription.poll())
            {
                next--; // the next poll begins with the subscription that found no room
                break;
            }
        }
    }

    /** Whether {@link #poll} would find something. */
    boolean hasMore()
    {
        for (int i = 0, count = polled.size(); i < count; i++)
        {
            final InboxSubscription subscription = polled.get(i);
            if (!subscription.isPaused && !subscription.isClosed() && subscription.hasMore())
            {
                return true;
            }
        }
        return false;
    }

    /**
     * Whether the driver has responded to all, and none will be opened again: {@link #checkResponses} is not needed.
     */
    boolean areSettled()
    {
        for (int i = 0, count = polled.size(); i < count; i++)
        {
            if (!polled.get(i).isSettled())
            {
                return false;
            }
        }
        return true;
    }
}

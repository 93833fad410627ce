package io.aeronspark.inbox;

import io.aeron.ExclusivePublication;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.LongFunction;

/** Publications whose driver response and first subscriber an inbox's poll waits for, beside messages and events. */
final class PendingPublications
{
    /** Time between two looks, short because each handshake waits for its publication. */
    private static final long CHECK_INTERVAL_NS = TimeUnit.MICROSECONDS.toNanos(50);

    private final LongFunction<ExclusivePublication> client;
    private final Map<Long, PendingPublication> byRegistrationId = new ConcurrentHashMap<>();
    private final ConcurrentLinkedQueue<PendingPublication> added = new ConcurrentLinkedQueue<>();

    private final List<PendingPublication> polled = new ArrayList<>();
    private long checkAtNs;

    /** {@code client} finds a publication by its registration id, see {@link PendingPublication}. */
    PendingPublications(final LongFunction<ExclusivePublication> client)
    {
        this.client = client;
    }

    /** From any thread. */
    void add(final long registrationId)
    {
        final PendingPublication pending = new PendingPublication(registrationId, client);
        byRegistrationId.put(registrationId, pending);
        added.add(pending);
    }

    /**
     * The publication, or null if the driver has not made it or it was not added. Throws the driver's refusal, each
     * time. From any thread.
     */
    ExclusivePublication find(final long registrationId)
    {
        final PendingPublication pending = byRegistrationId.get(registrationId);
        return pending == null ? null : pending.publication();
    }

    /** Stop looking for it. From any thread. */
    void remove(final long registrationId)
    {
        final PendingPublication pending = byRegistrationId.remove(registrationId);
        if (pending != null)
        {
            pending.cancel();
        }
    }

    /** From any thread. */
    void removeAll()
    {
        byRegistrationId.clear();
    }

    /** Whether one was added since the last {@link #hasProgress}. */
    boolean hasAdded()
    {
        return !added.isEmpty();
    }

    /** Whether the poll waits for none of them any more. On the polling thread. */
    boolean areDone()
    {
        return polled.isEmpty();
    }

    /** Whether the driver has responded for one of them, or a subscriber has connected. On the polling thread. */
    boolean hasProgress(final long nowNs)
    {
        for (PendingPublication one = added.poll(); one != null; one = added.poll())
        {
            polled.add(one);
            checkAtNs = nowNs;
        }
        if (polled.isEmpty() || nowNs - checkAtNs < 0)
        {
            return false;
        }
        checkAtNs = nowNs + CHECK_INTERVAL_NS;
        boolean hasProgress = false;
        for (int i = polled.size() - 1; i >= 0; i--)
        {
            final PendingPublication one = polled.get(i);
            hasProgress |= !one.isDone() && one.hasProgress();
            if (one.isDone())
            {
                polled.remove(i);
            }
        }
        return hasProgress;
    }
}

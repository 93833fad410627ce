package io.aeronspark.inbox;

import io.aeron.Aeron;
import io.aeron.DriverProxy;
import io.aeron.ExclusivePublication;
import io.aeron.Image;
import io.aeron.Subscription;
import io.aeronspark.client.DriverProxies;
import io.aeronspark.inbox.IdleInboxPoller.IdleInbox;
import java.nio.ByteBuffer;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.IdleStrategy;

/**
 * Polls many subscriptions in one call. Messages, images that become available or unavailable, rejections and failures
 * become records in memory that the caller reads in place until its next poll (see {@link InboxRecords}). The call
 * waits in Java, so that it does not hold the interpreter's lock meanwhile.
 * <p>
 * One thread calls {@link #poll}; any thread may call the other methods. No method waits for the driver.
 */
public final class Inbox implements AutoCloseable
{
    /** Shorter waits are not worth handing the inbox to the {@link IdleInboxPoller}. */
    private static final long MIN_SLEEP_NS = TimeUnit.MILLISECONDS.toNanos(1);
    /**
     * Of all inboxes of this process: an endpoint that has lost its driver continues with another inbox, which must not
     * take what remains of the old one for its own.
     */
    private static final AtomicInteger LAST_TOKEN = new AtomicInteger();

    private final Aeron aeron;
    private final IdleStrategy idleStrategy;
    private final long sleepAfterNs;
    private final DriverProxy driver;
    private final InboxRecords records;
    private final SubscriptionClient subscriptionClient;
    private final InboxEvents events = new InboxEvents();
    private final PolledSubscriptions subscriptions = new PolledSubscriptions();
    private final PendingPublications publications;
    private volatile boolean isWoken;

    private final IdleInboxPoller idleInboxPoller;
    private final IdleInbox idleInbox = new SleepingInbox();
    private volatile Thread sleeper;
    private volatile boolean hasWork;
    /** Whether the idle poller has to look for responses of the driver, too. */
    private boolean awaitsDriver;
    /** Whether the idle poller has seen progress of a publication, which is reported only once. */
    private boolean hasSeenProgress;
    private long lastWorkNs = System.nanoTime();

    /** This inbox as the {@link IdleInboxPoller} sees it while the polling thread sleeps. */
    private final class SleepingInbox implements IdleInbox
    {
        @Override
        public boolean hasWork()
        {
            if (isWoken || aeron.isClosed())
            {
                return true;
            }
            if (awaitsDriver)
            {
                final long nowNs = System.nanoTime();
                subscriptions.checkResponses(nowNs, events);
                hasSeenProgress = publications.hasProgress(nowNs);
            }
            return hasSeenProgress || subscriptions.hasChanges() || !events.isEmpty() || publications.hasAdded() ||
                subscriptions.hasMore();
        }

        @Override
        public void wakeUp()
        {
            hasWork = true;
            LockSupport.unpark(sleeper);
        }
    }

    /**
     * @param capacity     of the memory for records in bytes: more than the longest message and 256 KiB.
     * @param idleStrategy for the time between two polls without work.
     * @param sleepAfterNs nanoseconds without work after which the thread sleeps and {@code idleInboxPoller} polls for
     *                     it; 0 for never.
     */
    public Inbox(
        final Aeron aeron,
        final int capacity,
        final IdleStrategy idleStrategy,
        final long sleepAfterNs,
        final IdleInboxPoller idleInboxPoller)
    {
        this.aeron = aeron;
        this.idleInboxPoller = idleInboxPoller;
        this.idleStrategy = idleStrategy;
        this.sleepAfterNs = sleepAfterNs;
        records = new InboxRecords(capacity);
        subscriptionClient = new AeronSubscriptionClient(aeron);
        publications = new PendingPublications(aeron::getExclusivePublication);
        driver = DriverProxies.mapFor(aeron);
    }

    /** The memory of the records; the same buffer until the object is collected. */
    public ByteBuffer memory()
    {
        return records.memory();
    }

    /**
     * Add a subscription. The driver opens it later; its refusal becomes a record of the kind
     * {@link InboxRecords#SUBSCRIPTION_FAILED}.
     *
     * @param maxMessageLength in bytes; longer messages are dropped and counted.
     * @param unfragmentedOnly whether messages of several fragments are dropped and counted.
     * @param reopenNs         nanoseconds without an image after which to open it again, so that the receiver asks the
     *                         publisher once more; 0 for never.
     * @return token by which the records and the methods of this class name the subscription.
     */
    public int add(
        final String channel,
        final int streamId,
        final int maxMessageLength,
        final boolean unfragmentedOnly,
        final long reopenNs)
    {
        final InboxSubscription subscription = new InboxSubscription(
            subscriptionClient,
            events,
            records,
            LAST_TOKEN.incrementAndGet(),
            channel,
            streamId,
            maxMessageLength,
            unfragmentedOnly,
            reopenNs);
        subscription.open(System.nanoTime());
        subscriptions.add(subscription);
        return subscription.token;
    }

    /** The current registration id of a subscription, also before the driver has opened it. */
    public long registrationId(final int token)
    {
        final InboxSubscription subscription = subscriptions.find(token);
        return subscription == null ? Aeron.NULL_VALUE : subscription.registrationId();
    }

    /** Aeron's subscription, or null if the driver has not opened it. */
    public Subscription subscription(final int token)
    {
        final InboxSubscription subscription = subscriptions.find(token);
        return subscription == null ? null : subscription.subscription();
    }

    /**
     * Let a poll return, with or without records, when the driver has made this publication and when a subscriber
     * connects.
     */
    public void expect(final long registrationId)
    {
        publications.add(registrationId);
    }

    /**
     * A publication that is expected, or null if the driver has not made it. Throws the driver's refusal, each time.
     */
    public ExclusivePublication publication(final long registrationId)
    {
        return publications.find(registrationId);
    }

    /** Stop expecting a publication; call it before closing the publication. */
    public void forget(final long registrationId)
    {
        publications.remove(registrationId);
    }

    /**
     * Stop taking messages of a subscription, or take them again. The publisher is held back when the window is full.
     */
    public void pause(final int token, final boolean isPaused)
    {
        final InboxSubscription subscription = subscriptions.find(token);
        if (subscription != null)
        {
            subscription.isPaused = isPaused;
        }
    }

    /** Close a subscription; no further record names it. */
    public void remove(final int token)
    {
        subscriptions.remove(token);
    }

    /** Let the driver reject an image; an unknown one is ignored. */
    public void reject(final long imageId, final String reason)
    {
        final Image image = events.image(imageId);
        if (image != null && !image.isClosed() && !aeron.isClosed())
        {
            synchronized (driver)
            {
                driver.rejectImage(imageId, image.position(), reason);
            }
        }
    }

    /** Report the rejection of a publication as an event of the subscription that belongs to it. */
    void onPublicationRejected(final int token, final int sessionId, final String reason)
    {
        final InboxSubscription subscription = subscriptions.find(token);
        if (subscription != null)
        {
            events.add(new InboxEvent(InboxRecords.PUBLICATION_REJECTED, subscription, null, sessionId, reason));
        }
    }

    /** Messages dropped unread because they were too long or fragmented. */
    public long dropped()
    {
        return records.dropped();
    }

    /** End the poll that waits now, or else the next one. */
    public void wake()
    {
        isWoken = true;
        LockSupport.unpark(sleeper);
    }

    /**
     * Write messages and events as records, from the beginning of the memory.
     *
     * @param timeoutNs nanoseconds to wait for the first record.
     * @return bytes of the records: 0 after the time-out, a wake-up, or the progress of an expected publication.
     */
    public int poll(final long timeoutNs)
    {
        final long deadlineNs = System.nanoTime() + timeoutNs;
        while (true)
        {
            writeRecords();
            final long nowNs = System.nanoTime();
            final boolean hasProgress = hasSeenProgress || (!aeron.isClosed() && publications.hasProgress(nowNs));
            hasSeenProgress = false;
            if (records.used() > 0 || hasProgress)
            {
                // Not in each call: with short time-outs the strategy would never get beyond its spinning.
                idleStrategy.reset();
                lastWorkNs = nowNs;
            }
            if (hasProgress)
            {
                return records.used();
            }
            if (records.used() > 0 || isWoken || aeron.isClosed() || nowNs - deadlineNs >= 0)
            {
                isWoken = false;
                return records.used();
            }
            if (maySleep(nowNs, deadlineNs))
            {
                sleep(deadlineNs);
            }
            else
            {
                idleStrategy.idle();
            }
        }
    }

    private void writeRecords()
    {
        records.clear();
        subscriptions.update();
        if (!aeron.isClosed())
        {
            subscriptions.checkResponses(System.nanoTime(), events);
        }
        events.writeTo(records);
        subscriptions.poll();
    }

    /** Whether the thread was without work long enough. */
    private boolean maySleep(final long nowNs, final long deadlineNs)
    {
        return sleepAfterNs > 0 && nowNs - lastWorkNs > sleepAfterNs && deadlineNs - nowNs >= MIN_SLEEP_NS;
    }

    private void sleep(final long deadlineNs)
    {
        hasWork = false;
        awaitsDriver = !publications.areDone() || !subscriptions.areSettled();
        sleeper = Thread.currentThread();
        idleInboxPoller.add(idleInbox);
        try
        {
            long leftNs = deadlineNs - System.nanoTime();
            while (!hasWork && !isWoken && leftNs > 0)
            {
                LockSupport.parkNanos(this, leftNs);
                leftNs = deadlineNs - System.nanoTime();
            }
        }
        finally
        {
            sleeper = null;
            idleInboxPoller.remove(idleInbox);
        }
    }

    /** Close all subscriptions and end the poll. Publications and the client stay open. */
    @Override
    public void close()
    {
        subscriptions.removeAll();
        events.forgetImages();
        publications.removeAll();
        wake();
    }
}

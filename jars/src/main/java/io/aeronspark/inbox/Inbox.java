package io.aeronspark.inbox;

import io.aeron.Aeron;
import io.aeron.CncFileDescriptor;
import io.aeron.DriverProxy;
import io.aeron.ExclusivePublication;
import io.aeron.Image;
import io.aeron.Subscription;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.agrona.IoUtil;
import org.agrona.concurrent.IdleStrategy;
import org.agrona.concurrent.ringbuffer.ManyToOneRingBuffer;

/**
 * Many subscriptions, polled in one call: messages, images that come and go, rejections and failures become records in memory that the
 * caller reads in place, until the next poll. It waits in here, so that no interpreter's lock is held meanwhile.
 * <p>
 * {@link #poll} is for one thread, everything else for any. Nothing waits for the driver.
 */
public final class Inbox implements AutoCloseable
{
    /** Images and subscriptions told in one poll, each with a text; the rest of the memory is for messages. */
    private static final int NEWS_AT_ONCE = 256;
    private static final int LONGEST_TEXT = 1024;

    /** Shorter waits are not worth a rest. */
    private static final long SHORTEST_REST_NS = 1_000_000;

    /** Between two looks at publications that are being opened. */
    private static final long AWAITED_NS = 50_000;

    record News(int kind, InboxSubscription way, Image image, int sessionId, String text)
    {
    }

    private final Aeron aeron;
    private final IdleStrategy idle;
    private final long patienceNs;
    private final DriverProxy driver;
    private final InboxRecords records;
    private final AtomicInteger tokens = new AtomicInteger();
    private final Map<Integer, InboxSubscription> ways = new ConcurrentHashMap<>();
    private final Map<Long, Image> images = new ConcurrentHashMap<>();
    private final ConcurrentLinkedQueue<News> news = new ConcurrentLinkedQueue<>();
    private final ConcurrentLinkedQueue<InboxSubscription> added = new ConcurrentLinkedQueue<>();
    private final List<InboxSubscription> polled = new ArrayList<>();
    private final Map<Long, PendingPublication> openings = new ConcurrentHashMap<>();
    private final ConcurrentLinkedQueue<PendingPublication> begun = new ConcurrentLinkedQueue<>();
    private final List<PendingPublication> awaited = new ArrayList<>();
    private long awaitedAt;
    private int next;
    private long lookAt;
    private volatile long dropped;
    private volatile boolean woken;
    private volatile boolean removed;
    private volatile Thread resting;
    private volatile boolean called;
    private long cameAt = System.nanoTime();

    /**
     * @param capacity   of the memory for records in bytes: more than the longest message and 256 KiB.
     * @param idle       how to wait for something to come.
     * @param patienceNs after how long without anything to leave that to the {@link IdleInboxPoller} of all inboxes; 0 for never.
     */
    public Inbox(final Aeron aeron, final int capacity, final IdleStrategy idle, final long patienceNs)
    {
        this.aeron = aeron;
        this.idle = idle;
        this.patienceNs = patienceNs;
        records = new InboxRecords(capacity);
        // Mapped by ourselves, and left to the collector: the client unmaps its own when it ends, whoever is writing then.
        final MappedByteBuffer cnc = IoUtil.mapExistingFile(new File(aeron.context().aeronDirectoryName(), "cnc.dat"), "cnc");
        driver = new DriverProxy(
            new ManyToOneRingBuffer(
                CncFileDescriptor.createToDriverBuffer(cnc, CncFileDescriptor.createMetaDataBuffer(cnc))),
            aeron.clientId());
    }

    /** The records' memory. */
    public ByteBuffer memory()
    {
        return records.memory();
    }

    InboxRecords records()
    {
        return records;
    }

    /**
     * Add a subscription.
     *
     * @return its token.
     * @see InboxSubscription
     */
    public int add(
        final String channel, final int streamId, final int maxMessage, final boolean wholeOnly, final long againNs)
    {
        final InboxSubscription way =
            new InboxSubscription(this, tokens.incrementAndGet(), channel, streamId, maxMessage, wholeOnly, againNs);
        ways.put(way.token, way);
        way.open(aeron);
        added.add(way);
        return way.token;
    }

    /** The registration id that a subscription has, or will have. */
    public long registrationId(final int token)
    {
        final InboxSubscription way = ways.get(token);
        return way == null ? Aeron.NULL_VALUE : way.registrationId;
    }

    /** The subscription, or null while the driver has not made it. */
    public Subscription subscription(final int token)
    {
        final InboxSubscription way = ways.get(token);
        if (way == null)
        {
            return null;
        }
        way.settle(aeron); // its refusal is told by the poll, which asks again
        return way.subscription();
    }

    /** Have the poll end, with records or without, when the driver has made this publication, and when somebody hears it. */
    public void expect(final long registrationId)
    {
        final PendingPublication opening = new PendingPublication(registrationId);
        openings.put(registrationId, opening);
        begun.add(opening);
    }

    /** A publication that is expected, or null while the driver has not made it. Throws the driver's refusal, each time. */
    public ExclusivePublication publication(final long registrationId)
    {
        final PendingPublication opening = openings.get(registrationId);
        return opening == null ? null : opening.publication(aeron);
    }

    /** Expect it no more; it is about to be closed. */
    public void forget(final long registrationId)
    {
        final PendingPublication opening = openings.remove(registrationId);
        if (opening != null)
        {
            opening.over = true;
        }
    }

    /** Take no more messages of it, or take them again. */
    public void pause(final int token, final boolean paused)
    {
        final InboxSubscription way = ways.get(token);
        if (way != null)
        {
            way.paused = paused;
        }
    }

    /** Close a subscription; nothing is told of it any more. */
    public void remove(final int token)
    {
        final InboxSubscription way = ways.remove(token);
        if (way != null)
        {
            removed = true;
            way.close(aeron);
        }
    }

    /** Have the driver reject an image, without waiting for its answer. */
    public void reject(final long imageId, final String reason)
    {
        final Image image = images.get(imageId);
        if (image != null && !image.isClosed() && !aeron.isClosed())
        {
            synchronized (driver)
            {
                driver.rejectImage(imageId, image.position(), reason);
            }
        }
    }

    /** Tell of a rejection of what is published beside {@code token}. */
    void rejected(final int token, final int sessionId, final String reason)
    {
        final InboxSubscription way = ways.get(token);
        if (way != null)
        {
            tell(new News(InboxRecords.REJECTED, way, null, sessionId, reason));
        }
    }

    void tell(final News one)
    {
        news.add(one);
    }

    void drop()
    {
        dropped++; // by the polling thread alone
    }

    /** Messages dropped unread. */
    public long dropped()
    {
        return dropped;
    }

    /** End the poll that waits now, or the next one. */
    public void wake()
    {
        woken = true;
        LockSupport.unpark(resting);
    }

    /**
     * Write what has come as records, from the memory's beginning.
     *
     * @return bytes written: 0 where the time passed without anything.
     */
    public int poll(final long timeoutNs)
    {
        final long deadline = System.nanoTime() + timeoutNs;
        while (true)
        {
            cycle();
            final long now = System.nanoTime();
            if (records.used() > 0)
            {
                // not at each poll: short ones, of who waits for something else as well, would spin for ever
                idle.reset();
                cameAt = now;
            }
            if (openingMoved(now))
            {
                idle.reset();
                cameAt = now;
                return records.used();
            }
            if (records.used() > 0 || woken || aeron.isClosed() || now - deadline >= 0)
            {
                woken = false;
                return records.used();
            }
            if (patienceNs > 0 && now - cameAt > patienceNs && deadline - now >= SHORTEST_REST_NS && settled())
            {
                rest(deadline);
            }
            else
            {
                idle.idle();
            }
        }
    }

    private boolean openingMoved(final long now)
    {
        for (PendingPublication one = begun.poll(); one != null; one = begun.poll())
        {
            awaited.add(one);
            awaitedAt = now;
        }
        if (awaited.isEmpty() || now - awaitedAt < 0 || aeron.isClosed())
        {
            return false;
        }
        awaitedAt = now + AWAITED_NS;
        boolean moved = false;
        for (int i = awaited.size() - 1; i >= 0; i--)
        {
            final PendingPublication one = awaited.get(i);
            moved |= !one.over && one.moved(aeron);
            if (one.over)
            {
                awaited.remove(i);
            }
        }
        return moved;
    }

    /** Sleep until there is something. */
    private void rest(final long deadline)
    {
        called = false;
        resting = Thread.currentThread();
        IdleInboxPoller.OF_THIS_PROCESS.enter(this);
        try
        {
            long left = deadline - System.nanoTime();
            while (!called && !woken && left > 0)
            {
                LockSupport.parkNanos(this, left);
                left = deadline - System.nanoTime();
            }
        }
        finally
        {
            resting = null;
            IdleInboxPoller.OF_THIS_PROCESS.leave(this);
        }
    }

    /** For the lookout: end the rest. */
    void call()
    {
        called = true;
        LockSupport.unpark(resting);
    }

    /** For the lookout, while this one rests: whether a poll would find something. */
    boolean somethingCame()
    {
        if (woken || removed || !news.isEmpty() || !added.isEmpty() || !begun.isEmpty() || aeron.isClosed())
        {
            return true;
        }
        for (int i = 0, count = polled.size(); i < count; i++)
        {
            final InboxSubscription way = polled.get(i);
            if (!way.paused && !way.closed && way.hasMore())
            {
                return true;
            }
        }
        return false;
    }

    /** Whether all that is left to wait for is seen by the lookout. */
    private boolean settled()
    {
        if (!awaited.isEmpty())
        {
            return false;
        }
        for (int i = 0, count = polled.size(); i < count; i++)
        {
            if (!polled.get(i).settled())
            {
                return false;
            }
        }
        return true;
    }

    private void cycle()
    {
        records.clear();
        takeAdded();
        takeNews();
        final int count = polled.size();
        for (int i = 0; i < count; i++)
        {
            next = next + 1 >= count ? 0 : next + 1;
            final InboxSubscription way = polled.get(next);
            if (!way.paused && !way.closed && way.poll(records))
            {
                next--; // the one that found no room is first the next time
                break;
            }
        }
    }

    private void takeAdded()
    {
        if (removed)
        {
            removed = false;
            polled.removeIf(way -> way.closed);
        }
        for (InboxSubscription way = added.poll(); way != null; way = added.poll())
        {
            polled.add(way);
            lookAt = 0;
        }
        final long now = System.nanoTime();
        if (now - lookAt > 0 && !aeron.isClosed())
        {
            lookAt = now + 1_000_000;
            for (final InboxSubscription way : polled)
            {
                final String refusal = way.settle(aeron);
                if (refusal != null)
                {
                    ways.remove(way.token);
                    way.closed = true;
                    removed = true;
                    tell(new News(InboxRecords.FAILED, way, null, 0, refusal));
                }
                way.ask(aeron, now);
            }
        }
    }

    private void takeNews()
    {
        News one;
        int taken = 0;
        while (taken < NEWS_AT_ONCE && records.hasRoomFor(3 * LONGEST_TEXT) && (one = news.poll()) != null)
        {
            taken++;
            final InboxSubscription way = one.way;
            if (one.image != null && !way.has(one.image))
            {
                continue;
            }
            final long imageId = one.image == null ? 0 : one.image.correlationId();
            int kind = one.kind;
            switch (kind)
            {
                case InboxRecords.JOINED ->
                {
                    way.joined(one.image);
                    images.put(imageId, one.image);
                    kind = one.image.joinPosition() > 0 ? InboxRecords.JOINED_LATE : kind;
                }
                case InboxRecords.LEFT ->
                {
                    way.left(one.image);
                    images.remove(imageId);
                }
                default ->
                {
                }
            }
            if (!way.closed || kind == InboxRecords.FAILED)
            {
                final String text = one.text.length() > LONGEST_TEXT ? one.text.substring(0, LONGEST_TEXT) : one.text;
                records.add(kind, way.token, imageId, one.sessionId, text);
            }
        }
    }

    @Override
    public void close()
    {
        for (final Integer token : ways.keySet())
        {
            remove(token);
        }
        images.clear();
        openings.clear();
        wake();
    }
}

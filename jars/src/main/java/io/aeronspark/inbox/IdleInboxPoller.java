package io.aeronspark.inbox;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * One thread that polls all idle inboxes of an Aeron client every millisecond, so that the thread of each of them can
 * sleep until it has something to do. Two hundred inboxes that poll for themselves would take several cores.
 * <p>
 * Each Aeron client has its own, because a poll may wait for the lock of the client, which a call that waits for a
 * stopped driver holds for seconds.
 * <p>
 * An idle inbox is polled under the lock of this object and leaves under the same lock, so its own thread never polls
 * at the same time.
 * <p>
 * The thread ends when no inbox was idle for 5 s; the next idle inbox starts another thread.
 */
public final class IdleInboxPoller implements Runnable
{
    private static final long POLL_INTERVAL_NS = TimeUnit.MILLISECONDS.toNanos(1);

    /** Longer than busy inboxes are between two idle times, so that they do not start a thread each time. */
    private static final long THREAD_TIMEOUT_NS = TimeUnit.SECONDS.toNanos(5);

    private final ThreadFactory threads;
    private final List<IdleInbox> idle = new ArrayList<>();
    private Thread thread;

    /** An inbox whose thread sleeps. The poller calls both methods under its lock. */
    interface IdleInbox
    {
        /** Whether a poll would find something. */
        boolean hasWork();

        /** Wake the inbox's thread. */
        void wakeUp();
    }

    /** A poller that starts its thread for the first idle inbox. */
    public IdleInboxPoller()
    {
        this(IdleInboxPoller::newThread);
    }

    IdleInboxPoller(final ThreadFactory threads)
    {
        this.threads = threads;
    }

    private static Thread newThread(final Runnable runnable)
    {
        final Thread thread = new Thread(runnable, "aeron-spark-inbox");
        thread.setDaemon(true);
        return thread;
    }

    /** Poll this inbox until it has something to do, or {@link #remove} is called. */
    synchronized void add(final IdleInbox inbox)
    {
        idle.add(inbox);
        if (thread == null)
        {
            thread = threads.newThread(this);
            thread.start();
        }
        else if (idle.size() == 1)
        {
            LockSupport.unpark(thread);
        }
    }

    /** Stop polling this inbox; when the method returns, its own thread may poll. */
    synchronized void remove(final IdleInbox inbox)
    {
        idle.remove(inbox);
    }

    @Override
    public void run()
    {
        while (true)
        {
            if (poll())
            {
                LockSupport.parkNanos(this, POLL_INTERVAL_NS);
            }
            else if (awaitIdleInbox())
            {
                return;
            }
        }
    }

    /** Wait for an idle inbox; return whether there is none, so that the thread has to end. */
    private boolean awaitIdleInbox()
    {
        LockSupport.parkNanos(this, THREAD_TIMEOUT_NS);
        synchronized (this)
        {
            if (idle.isEmpty())
            {
                thread = null;
            }
            return thread == null;
        }
    }

    /** Wake the inboxes that have something to do; return whether others are still idle. */
    synchronized boolean poll()
    {
        idle.removeIf(inbox ->
        {
            final boolean hasWork = hasWork(inbox);
            if (hasWork)
            {
                inbox.wakeUp();
            }
            return hasWork;
        });
        return !idle.isEmpty();
    }

    private static boolean hasWork(final IdleInbox inbox)
    {
        try
        {
            return inbox.hasWork();
        }
        catch (final RuntimeException ignore)
        {
            return true; // The inbox's client is being closed; its own thread finds out the reason.
        }
    }
}

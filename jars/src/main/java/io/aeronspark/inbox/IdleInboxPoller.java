package io.aeronspark.inbox;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * One thread of a process that looks for all inboxes at rest whether something has come, so that each of them can sleep until then: two
 * hundred that look for themselves would take several cores.
 * <p>
 * An inbox at rest is looked at under this one's lock, and leaves it under the same, so that its own thread never polls meanwhile.
 * <p>
 * The thread ends when no inbox has rested for some seconds; the next inbox at rest begins another one.
 */
final class IdleInboxPoller implements Runnable
{
    static final IdleInboxPoller OF_THIS_PROCESS = new IdleInboxPoller();

    private static final long LOOK_NS = TimeUnit.MILLISECONDS.toNanos(1);

    /** Longer than busy inboxes go without a rest. */
    private static final long LINGER_NS = TimeUnit.SECONDS.toNanos(5);

    private final List<Inbox> resting = new ArrayList<>();
    private Thread thread;

    private IdleInboxPoller()
    {
    }

    /** Look after this one until something has come for it, or it leaves. */
    synchronized void enter(final Inbox inbox)
    {
        resting.add(inbox);
        if (thread == null)
        {
            thread = new Thread(this, "aeron-spark-lookout");
            thread.setDaemon(true);
            thread.start();
        }
        else if (resting.size() == 1)
        {
            LockSupport.unpark(thread);
        }
    }

    /** It looks for itself again. */
    synchronized void leave(final Inbox inbox)
    {
        resting.remove(inbox);
    }

    @Override
    public void run()
    {
        while (true)
        {
            if (look())
            {
                LockSupport.parkNanos(this, LOOK_NS);
            }
            else if (hasEnded())
            {
                return;
            }
        }
    }

    /** Wait for an inbox that rests; whether none came, which is the thread's end. */
    private boolean hasEnded()
    {
        LockSupport.parkNanos(this, LINGER_NS);
        synchronized (this)
        {
            if (resting.isEmpty())
            {
                thread = null;
            }
            return thread == null;
        }
    }

    /** Call those for whom there is something; whether any are left. */
    private synchronized boolean look()
    {
        resting.removeIf(inbox ->
        {
            boolean called = true; // also where it cannot be looked at: its own thread finds out why
            try
            {
                called = inbox.somethingCame();
            }
            catch (final RuntimeException ignored)
            {
                // its client is being closed
            }
            if (called)
            {
                inbox.call();
            }
            return called;
        });
        return !resting.isEmpty();
    }
}

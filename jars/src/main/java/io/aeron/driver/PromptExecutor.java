package io.aeron.driver;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.IdleStrategy;
import org.agrona.concurrent.OneToOneConcurrentArrayQueue;

/**
 * Wakes the executor thread of a driver for each task. The driver gives each UDP channel to this thread, which resolves
 * names, and executes no other command meanwhile. With Aeron's idle strategy the thread sleeps 1 ms at a time: each
 * channel waits for it, and in an idle driver it wakes up a thousand times a second.
 * <p>
 * It is in Aeron's package because {@link MediaDriver.Context} takes the queue of the tasks only there.
 */
public final class PromptExecutor
{
    /** The thread also calls a driver's name resolver, whose shortest interval this is. */
    static final long MAX_SLEEP_NS = TimeUnit.MILLISECONDS.toNanos(10);

    private PromptExecutor()
    {
    }

    /** Let the driver of this context, which has not been launched yet, wake its executor thread for each task. */
    public static void configure(final MediaDriver.Context context)
    {
        final TaskQueue tasks = new TaskQueue(Configuration.CMD_QUEUE_CAPACITY, MAX_SLEEP_NS);
        context.asyncTaskQueue(tasks).asyncExecutorIdleStrategy(tasks.idleStrategy());
    }

    /** The queue of tasks: the conductor offers them, and the executor thread polls them. */
    static final class TaskQueue extends OneToOneConcurrentArrayQueue<Runnable>
    {
        private final long maxSleepNs;
        private volatile Thread executor;

        TaskQueue(final int capacity, final long maxSleepNs)
        {
            super(capacity);
            this.maxSleepNs = maxSleepNs;
        }

        @Override
        public boolean offer(final Runnable task)
        {
            final boolean isAccepted = super.offer(task);
            LockSupport.unpark(executor);
            return isAccepted;
        }

        /** The idle strategy of the executor thread: it sleeps until a task is offered. */
        IdleStrategy idleStrategy()
        {
            return new UntilOffered();
        }

        private final class UntilOffered implements IdleStrategy
        {
            @Override
            public void idle(final int workCount)
            {
                if (workCount <= 0)
                {
                    idle();
                }
            }

            @Override
            public void idle()
            {
                executor = Thread.currentThread(); // before the look: a later offer ends the sleep, or prevents it
                if (isEmpty())
                {
                    LockSupport.parkNanos(TaskQueue.this, maxSleepNs);
                }
            }

            @Override
            public void reset()
            {
            }

            @Override
            public String alias()
            {
                return "until-offered";
            }
        }
    }
}

package io.aeron.driver;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeron.driver.PromptExecutor.TaskQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.agrona.concurrent.IdleStrategy;
import org.junit.jupiter.api.Test;

class PromptExecutorTest
{
    private static final long TIMEOUT_S = 10;
    private static final long LONGER_THAN_THE_TEST_NS = TimeUnit.HOURS.toNanos(1);
    private static final Runnable TASK = () -> {};

    private final TaskQueue tasks = new TaskQueue(8, LONGER_THAN_THE_TEST_NS);
    private final IdleStrategy idleStrategy = tasks.idleStrategy();

    @Test
    void aTaskWakesTheThreadThatSleeps() throws InterruptedException
    {
        final CountDownLatch isPolled = new CountDownLatch(1);
        final Thread executor = new Thread(() ->
        {
            while (tasks.poll() == null)
            {
                idleStrategy.idle(0);
            }
            isPolled.countDown();
        });
        executor.start();
        while (executor.getState() != Thread.State.TIMED_WAITING)
        {
            Thread.onSpinWait();
        }
        assertTrue(tasks.offer(TASK));
        assertTrue(isPolled.await(TIMEOUT_S, TimeUnit.SECONDS));
        executor.join(TimeUnit.SECONDS.toMillis(TIMEOUT_S));
        assertFalse(executor.isAlive());
    }

    @Test
    void theThreadDoesNotSleepWhileATaskWaitsOrAfterWork()
    {
        tasks.offer(TASK);
        idleStrategy.idle(0);
        assertSame(TASK, tasks.poll());
        idleStrategy.idle(1);
    }

    @Test
    void aDriverThatHasNotBeenLaunchedTakesTheQueueAndTheStrategy()
    {
        final MediaDriver.Context context = new MediaDriver.Context();
        PromptExecutor.configure(context);
        assertTrue(context.asyncTaskQueue() instanceof TaskQueue);
        assertTrue(context.asyncExecutorIdleStrategy().alias().equals("until-offered"));
    }
}

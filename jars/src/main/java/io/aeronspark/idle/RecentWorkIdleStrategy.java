package io.aeronspark.idle;

import java.util.concurrent.locks.LockSupport;
import java.util.function.LongConsumer;
import java.util.function.LongSupplier;
import org.agrona.concurrent.IdleStrategy;

/**
 * Sleeps shortly for some time after work that others wait for, because more of it often follows soon. Otherwise the
 * sleeps double from the shortest to the longest one, as those of Agrona's backoff strategy. After a longer time without
 * such work, the longest one is several times as long.
 */
public final class RecentWorkIdleStrategy implements IdleStrategy
{
    private final LongSupplier awaitedWork;
    private final long recentNs;
    private final long minSleepNs;
    private final long maxSleepNs;
    private final long quietNs;
    private final long quietSleepNs;
    private final LongSupplier nanoClock;
    private final LongConsumer sleep;

    private long lastAwaitedWork;
    private long recentUntilNs;
    private long sleepNs;
    private boolean hasYielded;

    /**
     * @param awaitedWork how much work that others wait for the thread has done; read after each turn with work.
     * @param recentNs    nanoseconds of short sleeps after such work.
     * @param minSleepNs  nanoseconds of a short sleep.
     * @param maxSleepNs  nanoseconds of the longest sleep.
     * @param quietNs     nanoseconds after those of the short sleeps, until the longest sleep is another one.
     * @param quietSleepNs nanoseconds of the longest sleep from then on.
     */
    public RecentWorkIdleStrategy(
        final LongSupplier awaitedWork,
        final long recentNs,
        final long minSleepNs,
        final long maxSleepNs,
        final long quietNs,
        final long quietSleepNs)
    {
        this(
            awaitedWork, recentNs, minSleepNs, maxSleepNs, quietNs, quietSleepNs, System::nanoTime,
            LockSupport::parkNanos);
    }

    RecentWorkIdleStrategy(
        final LongSupplier awaitedWork,
        final long recentNs,
        final long minSleepNs,
        final long maxSleepNs,
        final long quietNs,
        final long quietSleepNs,
        final LongSupplier nanoClock,
        final LongConsumer sleep)
    {
        this.awaitedWork = awaitedWork;
        this.recentNs = recentNs;
        this.minSleepNs = minSleepNs;
        this.maxSleepNs = maxSleepNs;
        this.quietNs = quietNs;
        this.quietSleepNs = quietSleepNs;
        this.nanoClock = nanoClock;
        this.sleep = sleep;
        sleepNs = minSleepNs;
        recentUntilNs = nanoClock.getAsLong();
    }

    @Override
    public void idle(final int workCount)
    {
        if (workCount <= 0)
        {
            idle();
            return;
        }
        reset();
        final long work = awaitedWork.getAsLong();
        if (work != lastAwaitedWork)
        {
            lastAwaitedWork = work;
            recentUntilNs = nanoClock.getAsLong() + recentNs;
        }
    }

    @Override
    public void idle()
    {
        if (!hasYielded)
        {
            hasYielded = true;
            Thread.yield();
            return;
        }
        sleep.accept(sleepNs);
        final long sinceNs = nanoClock.getAsLong() - recentUntilNs;
        if (sinceNs >= 0)
        {
            sleepNs = Math.min(2 * sleepNs, sinceNs < quietNs ? maxSleepNs : quietSleepNs);
        }
    }

    @Override
    public void reset()
    {
        sleepNs = minSleepNs;
        hasYielded = false;
    }

    @Override
    public String alias()
    {
        return "recent-work";
    }
}

package io.aeronspark.idle;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class RecentWorkIdleStrategyTest
{
    private final List<Long> sleeps = new ArrayList<>();
    private long nowNs;
    private long data;
    private final RecentWorkIdleStrategy strategy =
        new RecentWorkIdleStrategy(() -> data, 300, 50, 1_000, 20_000, 4_000, () -> nowNs, this::sleep);

    private void sleep(final long nanoseconds)
    {
        sleeps.add(nanoseconds);
        nowNs += nanoseconds;
    }

    /** The sleeps of so many turns without work after one with work. */
    private List<Long> sleepsAfterWork(final int turns)
    {
        sleeps.clear();
        strategy.idle(1);
        for (int turn = 0; turn < turns; turn++)
        {
            strategy.idle(0);
        }
        return List.copyOf(sleeps);
    }

    @Test
    void sleepsShortlyForSomeTimeAfterData()
    {
        data = 96;
        assertEquals(List.of(50L, 50L, 50L, 50L, 50L, 50L, 100L, 200L, 400L, 800L, 1_000L, 1_000L),
            sleepsAfterWork(13));
    }

    @Test
    void sleepsLongerEachTimeAfterOtherWork()
    {
        assertEquals(List.of(50L, 100L, 200L, 400L, 800L, 1_000L, 1_000L), sleepsAfterWork(8));
    }

    @Test
    void otherWorkDoesNotEndTheShortSleepsAfterData()
    {
        data = 96;
        sleepsAfterWork(2);
        assertEquals(List.of(50L, 50L, 50L, 50L, 50L, 100L), sleepsAfterWork(7));
    }

    @Test
    void eachDataBeginsTheTimeOfShortSleepsAgain()
    {
        data = 96;
        sleepsAfterWork(20);
        data = 192;
        assertEquals(List.of(50L, 50L, 50L, 50L, 50L, 50L, 100L), sleepsAfterWork(8));
    }

    @Test
    void sleepsLongerStillAfterALongTimeWithoutData()
    {
        nowNs = 20_000;
        assertEquals(List.of(50L, 100L, 200L, 400L, 800L, 1_600L, 3_200L, 4_000L, 4_000L), sleepsAfterWork(10));
        data = 96;
        assertEquals(List.of(50L, 50L, 50L, 50L, 50L, 50L, 100L, 200L, 400L, 800L, 1_000L, 1_000L),
            sleepsAfterWork(13));
    }
}

package io.aeronspark.inbox;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class ReopenTimerTest
{
    private static final long INTERVAL_NS = 300;
    private final ReopenTimer timer = new ReopenTimer(INTERVAL_NS);

    @Test
    void isDueWhenTheIntervalAfterTheResponseHasPassed()
    {
        timer.onOpen(1_000);
        timer.onResponse(1_010);
        assertFalse(timer.isDue(1_010 + INTERVAL_NS));
        assertTrue(timer.isDue(1_010 + INTERVAL_NS + 1));
    }

    @Test
    void waitsFourTimesAsLongAsASlowDriverTookToRespond()
    {
        timer.onOpen(1_000);
        timer.onResponse(1_500);
        assertFalse(timer.isDue(1_500 + 4 * 500));
        assertTrue(timer.isDue(1_500 + 4 * 500 + 1));
    }

    @Test
    void waitsTwiceAsLongEachTimeUpToTheLongestInterval()
    {
        long expectedNs = INTERVAL_NS;
        for (int i = 0; i < 40; i++)
        {
            timer.onOpen(0);
            timer.onResponse(0);
            assertFalse(timer.isDue(expectedNs));
            assertTrue(timer.isDue(expectedNs + 1));
            expectedNs = Math.min(2 * expectedNs, ReopenTimer.MAX_INTERVAL_NS);
        }
    }

    @Test
    void countsFromTheFirstResponseOnly()
    {
        timer.onOpen(1_000);
        timer.onResponse(1_010);
        timer.onResponse(5_000);
        assertTrue(timer.isDue(5_000));
    }

    @Test
    void isNotDueBeforeTheDriverResponds()
    {
        timer.onOpen(1_000);
        assertFalse(timer.isDue(1_000_000));
        timer.onResponse(1_000_000);
        timer.onOpen(1_000_000);
        assertFalse(timer.isDue(2_000_000));
    }

    @Test
    void isNeverDueWithAnIntervalOfZero()
    {
        final ReopenTimer disabled = new ReopenTimer(0);
        disabled.onOpen(0);
        disabled.onResponse(0);
        assertFalse(disabled.isEnabled());
        assertFalse(disabled.isDue(Long.MAX_VALUE));
    }
}

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

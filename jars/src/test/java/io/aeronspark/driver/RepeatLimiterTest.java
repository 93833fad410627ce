package io.aeronspark.driver;

import static io.aeronspark.driver.RepeatLimiter.FIRST_ERROR_PAUSE_NS;
import static io.aeronspark.driver.RepeatLimiter.FIRST_SETUP_PAUSE_NS;
import static io.aeronspark.driver.RepeatLimiter.FIRST_STATUS_PAUSE_NS;
import static io.aeronspark.driver.RepeatLimiter.FORGET_AFTER_NS;
import static io.aeronspark.driver.RepeatLimiter.MAX_PAUSE_NS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.LongPredicate;
import org.junit.jupiter.api.Test;

class RepeatLimiterTest
{
    private static final int SESSION = 7;
    private static final long MS = TimeUnit.MILLISECONDS.toNanos(1);
    private static final short NO_FLAGS = 0;
    private final RepeatLimiter limiter = new RepeatLimiter(0);

    /** Times in milliseconds at which a frame leaves that is tried every millisecond, up to {@code endMs}. */
    private static List<Long> sentTimes(final LongPredicate isPermitted, final int endMs)
    {
        final List<Long> times = new ArrayList<>();
        for (long ms = 0; ms < endMs; ms++)
        {
            if (isPermitted.test(ms * MS))
            {
                times.add(ms);
            }
        }
        return times;
    }

    @Test
    void repeatsAStatusMessageAfterPausesThatDoubleUpToOneSecond()
    {
        final List<Long> times =
            sentTimes(now -> limiter.permitsStatusMessage(SESSION, 1, 0, 4096, NO_FLAGS, now), 5_000);
        assertEquals(List.of(0L, 8L, 24L, 56L, 120L, 248L, 504L, 1016L, 2016L, 3016L, 4016L), times);
    }

    @Test
    void sendsAChangedStatusMessageAtOnce()
    {
        assertTrue(limiter.permitsStatusMessage(SESSION, 1, 0, 4096, NO_FLAGS, 0));
        assertFalse(limiter.permitsStatusMessage(SESSION, 1, 0, 4096, NO_FLAGS, 0));
        assertTrue(limiter.permitsStatusMessage(SESSION, 2, 0, 4096, NO_FLAGS, 0));
        assertTrue(limiter.permitsStatusMessage(SESSION, 2, 32, 4096, NO_FLAGS, 0));
        assertTrue(limiter.permitsStatusMessage(SESSION, 2, 32, 8192, NO_FLAGS, 0));
        assertTrue(limiter.permitsStatusMessage(SESSION, 2, 32, 8192, (short)1, 0));
        assertFalse(limiter.permitsStatusMessage(SESSION, 2, 32, 8192, (short)1, FIRST_STATUS_PAUSE_NS - 1));
        assertTrue(limiter.permitsStatusMessage(SESSION, 2, 32, 8192, (short)1, FIRST_STATUS_PAUSE_NS));
    }

    @Test
    void repeatsAnErrorAfterPausesThatDoubleUpToOneSecond()
    {
        assertEquals(200, FIRST_ERROR_PAUSE_NS / MS);
        assertEquals(1_000, MAX_PAUSE_NS / MS);
        assertEquals(
            List.of(0L, 200L, 600L, 1400L, 2400L), sentTimes(now -> limiter.permitsError(SESSION, now), 3_000));
    }

    @Test
    void sendsTheSetupOfAnotherResponseAtOnceAndRepeatsItLater()
    {
        assertTrue(limiter.permitsResponseSetup(SESSION, 1, 0));
        assertTrue(limiter.permitsResponseSetup(SESSION, 2, 0));
        assertFalse(limiter.permitsResponseSetup(SESSION, 2, FIRST_SETUP_PAUSE_NS - 1));
        assertTrue(limiter.permitsResponseSetup(SESSION, 2, FIRST_SETUP_PAUSE_NS));
        assertFalse(limiter.permitsResponseSetup(SESSION, 2, 2 * FIRST_SETUP_PAUSE_NS));
        assertTrue(limiter.permitsResponseSetup(SESSION, 2, 3 * FIRST_SETUP_PAUSE_NS));
    }

    @Test
    void limitsEachSessionByItself()
    {
        assertTrue(limiter.permitsError(1, 0));
        assertTrue(limiter.permitsError(2, 0));
        assertFalse(limiter.permitsError(1, 0));
    }

    @Test
    void forgetsASessionThatHasSentNothingForTwoSeconds()
    {
        assertTrue(limiter.permitsError(1, 0));
        assertTrue(limiter.permitsError(2, FORGET_AFTER_NS + 1));
        assertTrue(limiter.permitsError(1, FORGET_AFTER_NS + 1));
        // With the first pause again; a session that was not forgotten would wait 400 ms.
        assertTrue(limiter.permitsError(1, FORGET_AFTER_NS + 1 + FIRST_ERROR_PAUSE_NS));
    }
}

package io.aeronspark.guard;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class RateLimiterTest
{
    private static final long SECOND = 1_000_000_000L;

    private static RateLimiter limiter(final String parameters)
    {
        return new RateLimiter(GuardFixture.rules(parameters), 0);
    }

    private static int introduced(final RateLimiter limiter, final long source, final int attempts, final long nowNs)
    {
        int introduced = 0;
        for (int attempt = 0; attempt < attempts; attempt++)
        {
            introduced += limiter.tryIntroduction(source, nowNs) ? 1 : 0;
        }
        return introduced;
    }

    @Test
    void permitsTheBurstAndThenTheRateOfASource()
    {
        final RateLimiter limiter = limiter("guard-rate=10|guard-burst=40|guard-total-rate=100000");
        assertEquals(40, introduced(limiter, 1, 1000, 0));
        assertEquals(0, introduced(limiter, 1, 1000, SECOND / 20));
        assertEquals(1, introduced(limiter, 1, 1000, SECOND / 10));
        assertEquals(10, introduced(limiter, 1, 1000, SECOND + SECOND / 10));
        assertEquals(40, introduced(limiter, 1, 1000, 100 * SECOND));
    }

    @Test
    void permitsOtherSourcesDuringAFlood()
    {
        final RateLimiter limiter = limiter("guard-rate=10|guard-burst=40|guard-total-rate=100000");
        introduced(limiter, 1, 1000, 0);
        int others = 0;
        for (int source = 2; source < 12; source++)
        {
            others += introduced(limiter, source, 10, 0);
        }
        assertTrue(others >= 90, () -> "more than one of ten sources shares a bucket with the first");
    }

    @Test
    void limitsAllSourcesTogether()
    {
        final RateLimiter limiter = limiter("guard-rate=1000|guard-burst=1000|guard-total-rate=100");
        int all = 0;
        for (int source = 0; source < 1000; source++)
        {
            all += introduced(limiter, source, 1, 0);
        }
        assertEquals(5, all); // the introductions of a twentieth of a second
    }

    @Test
    void permitsAnswersOnlyUpToTheBytesReceived()
    {
        final RateLimiter limiter = limiter("guard-rate=10");
        assertFalse(limiter.tryAnswer(1, 40, 100));
        assertFalse(limiter.tryAnswer(1, 40, 100));
        assertTrue(limiter.tryAnswer(1, 40, 100));
        assertFalse(limiter.tryAnswer(1, 40, 100));
        int answers = 0;
        limiter.tryAnswer(2, 1_000_000, 100);
        for (int attempt = 0; attempt < 10; attempt++)
        {
            answers += limiter.tryAnswer(2, 0, 100) ? 1 : 0;
        }
        assertEquals(1, answers); // bytes of an earlier flood pay for two answers at most
    }
}

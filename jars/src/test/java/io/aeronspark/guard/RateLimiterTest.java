package io.aeronspark.guard;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeron.ChannelUri;
import java.util.Properties;
import org.junit.jupiter.api.Test;

class RateLimiterTest
{
    private static final long SECOND = 1_000_000_000L;

    private static RateLimiter rates(final String parameters)
    {
        return new RateLimiter(GuardRules.of(ChannelUri.parse("aeron:udp?endpoint=127.0.0.1:1|" + parameters), new Properties()), 0);
    }

    private static int taken(final RateLimiter rates, final long source, final int attempts, final long nowNs)
    {
        int taken = 0;
        for (int attempt = 0; attempt < attempts; attempt++)
        {
            taken += rates.take(source, nowNs) ? 1 : 0;
        }
        return taken;
    }

    @Test
    void aSourceHasItsBurstAndThenItsRate()
    {
        final RateLimiter rates = rates("guard-rate=10|guard-burst=40|guard-total-rate=100000");
        assertEquals(40, taken(rates, 1, 1000, 0));
        assertEquals(0, taken(rates, 1, 1000, SECOND / 20));
        assertEquals(1, taken(rates, 1, 1000, SECOND / 10));
        assertEquals(10, taken(rates, 1, 1000, SECOND + SECOND / 10));
        assertEquals(40, taken(rates, 1, 1000, 100 * SECOND));
    }

    @Test
    void anotherSourceIsNotHeldUp()
    {
        final RateLimiter rates = rates("guard-rate=10|guard-burst=40|guard-total-rate=100000");
        taken(rates, 1, 1000, 0);
        int others = 0;
        for (int source = 2; source < 12; source++)
        {
            others += taken(rates, source, 10, 0);
        }
        assertTrue(others >= 90, () -> "two of ten sources may share a slot with the first one, not more");
    }

    @Test
    void allSourcesTogetherHaveALimit()
    {
        final RateLimiter rates = rates("guard-rate=1000|guard-burst=1000|guard-total-rate=100");
        int all = 0;
        for (int source = 0; source < 1000; source++)
        {
            all += taken(rates, source, 1, 0);
        }
        assertEquals(5, all); // those of a twentieth of a second
    }

    @Test
    void answersNeverOutweighWhatCame()
    {
        final RateLimiter rates = rates("guard-rate=10");
        assertFalse(rates.covers(1, 40, 100));
        assertFalse(rates.covers(1, 40, 100));
        assertTrue(rates.covers(1, 40, 100));
        assertFalse(rates.covers(1, 40, 100));
        int answers = 0;
        rates.covers(2, 1_000_000, 100);
        for (int attempt = 0; attempt < 10; attempt++)
        {
            answers += rates.covers(2, 0, 100) ? 1 : 0;
        }
        assertEquals(1, answers); // a flood of the past pays for two answers, not for ten thousand
    }
}

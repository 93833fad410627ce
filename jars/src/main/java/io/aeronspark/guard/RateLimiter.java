package io.aeronspark.guard;

import java.security.SecureRandom;
import java.util.Arrays;

/**
 * Token buckets for introductions, one a slot and one for all. Sources share {@value #SLOTS} slots by a keyed hash, so that no number of
 * invented addresses makes the table grow. Whoever shares a slot with a flood waits; known sessions never ask here.
 */
final class RateLimiter
{
    private static final int SLOTS = 8192;
    private static final double SECOND_NS = 1e9;
    /** Of the introductions of everybody, those of this part of a second may come at once: the driver's thread makes them one after another. */
    private static final double TOTAL_BURST_SECONDS = 0.05;

    private final long seed = new SecureRandom().nextLong();
    private final double[] tokens = new double[SLOTS];
    private final long[] stamps = new long[SLOTS];
    private final int[] bytes = new int[SLOTS];
    private final int rate;
    private final int burst;
    private final int totalRate;
    private final double mostAtOnce;
    private double total;
    private long totalStamp;

    RateLimiter(final GuardRules rules, final long nowNs)
    {
        rate = rules.rate();
        burst = rules.burst();
        totalRate = rules.totalRate();
        mostAtOnce = Math.max(1, totalRate * TOTAL_BURST_SECONDS);
        total = mostAtOnce;
        totalStamp = nowNs;
        Arrays.fill(tokens, burst);
        Arrays.fill(stamps, nowNs);
    }

    /** Take one introduction of this source; false where it, or everybody together, has had enough. */
    boolean take(final long source, final long nowNs)
    {
        final int slot = slot(source);
        tokens[slot] = Math.min(burst, tokens[slot] + (nowNs - stamps[slot]) / SECOND_NS * rate);
        stamps[slot] = nowNs;
        total = Math.min(mostAtOnce, total + (nowNs - totalStamp) / SECOND_NS * totalRate);
        totalStamp = nowNs;
        if (tokens[slot] < 1 || total < 1)
        {
            return false;
        }
        tokens[slot] -= 1;
        total -= 1;
        return true;
    }

    /** Add received bytes of a source, and take {@code cost} of them if there are as many: answers then never outweigh what came. */
    boolean covers(final long source, final int received, final int cost)
    {
        final int slot = slot(source);
        bytes[slot] = Math.min(2 * cost, bytes[slot] + received);
        if (bytes[slot] < cost)
        {
            return false;
        }
        bytes[slot] -= cost;
        return true;
    }

    private int slot(final long source)
    {
        long z = source ^ seed;
        z = (z ^ z >>> 30) * 0xBF58476D1CE4E5B9L;
        z = (z ^ z >>> 27) * 0x94D049BB133111EBL;
        return (int)(z ^ z >>> 31) & SLOTS - 1;
    }
}

package io.aeronspark.guard;

import java.security.SecureRandom;
import java.util.Arrays;

/**
 * Token buckets for introductions: the first frames of new sessions and receivers. All sources share {@value #SLOTS}
 * buckets by a keyed hash, so that forged addresses cannot make the table grow, and there is one bucket for all
 * together. A source that shares a bucket with a flood has to wait; known sessions and receivers need no token.
 * <p>
 * Times are nanoseconds of one clock. Used by one of the driver's threads alone.
 */
final class RateLimiter
{
    private static final int SLOTS = 8192;
    private static final double SECOND_NS = 1e9;
    /**
     * The introductions of all sources that may come at once are those of this part of a second: the driver's thread
     * handles them one after another, and delays all other work meanwhile.
     */
    private static final double TOTAL_BURST_SECONDS = 0.05;

    private final long hashKey = new SecureRandom().nextLong();
    private final double[] tokens = new double[SLOTS];
    private final long[] refilledNs = new long[SLOTS];
    private final int[] receivedBytes = new int[SLOTS];
    private final int rate;
    private final int burst;
    private final int totalRate;
    private final double totalBurst;
    private double totalTokens;
    private long totalRefilledNs;

    RateLimiter(final GuardRules rules, final long nowNs)
    {
        rate = rules.rate();
        burst = rules.burst();
        totalRate = rules.totalRate();
        totalBurst = Math.max(1, totalRate * TOTAL_BURST_SECONDS);
        totalTokens = totalBurst;
        totalRefilledNs = nowNs;
        Arrays.fill(tokens, burst);
        Arrays.fill(refilledNs, nowNs);
    }

    /** Take a token for an introduction; false if this source, or all sources together, have none left. */
    boolean tryIntroduction(final long source, final long nowNs)
    {
        final int slot = slotOf(source);
        tokens[slot] = Math.min(burst, tokens[slot] + (nowNs - refilledNs[slot]) / SECOND_NS * rate);
        refilledNs[slot] = nowNs;
        totalTokens = Math.min(totalBurst, totalTokens + (nowNs - totalRefilledNs) / SECOND_NS * totalRate);
        totalRefilledNs = nowNs;
        if (tokens[slot] < 1 || totalTokens < 1)
        {
            return false;
        }
        tokens[slot] -= 1;
        totalTokens -= 1;
        return true;
    }

    /**
     * Add bytes that a source without a session has sent, and subtract an answer if there are enough: the driver never
     * sends such a source more bytes than it received from there.
     *
     * @return whether the answer may leave.
     */
    boolean tryAnswer(final long source, final int received, final int answer)
    {
        final int slot = slotOf(source);
        receivedBytes[slot] = Math.min(2 * answer, receivedBytes[slot] + received);
        if (receivedBytes[slot] < answer)
        {
            return false;
        }
        receivedBytes[slot] -= answer;
        return true;
    }

    /** The finaliser of SplitMix64 over source and key. */
    private int slotOf(final long source)
    {
        long z = source ^ hashKey;
        z = (z ^ z >>> 30) * 0xBF58476D1CE4E5B9L;
        z = (z ^ z >>> 27) * 0x94D049BB133111EBL;
        return (int)(z ^ z >>> 31) & SLOTS - 1;
    }
}

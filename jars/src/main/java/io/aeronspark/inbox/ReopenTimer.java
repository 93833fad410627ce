package io.aeronspark.inbox;

/**
 * Decides when a subscription without an image is opened again, so that the receiver asks the publisher for a SETUP
 * once more after a lost request or before the publisher was there.
 * <p>
 * A subscription that is opened again before the driver could create its image starts the set-up from the beginning.
 * So the pause is longer if the driver responds slowly, and it doubles each time: on a machine that is overloaded it
 * becomes long enough for the image.
 * <p>
 * All times are nanoseconds of one clock. Not thread-safe.
 */
final class ReopenTimer
{
    /** An image may take this many times as long as the driver's response to the subscription. */
    private static final int IMAGE_PER_RESPONSE = 4;
    /** The interval doubles up to this time, so that the time for a set-up is enough for several requests. */
    static final long MAX_INTERVAL_NS = 1_200_000_000;

    private long intervalNs;
    private long openedNs;
    private long dueNs;
    private boolean hasResponse;

    /** With an interval of 0 the subscription is never opened again. */
    ReopenTimer(final long intervalNs)
    {
        this.intervalNs = intervalNs;
    }

    boolean isEnabled()
    {
        return intervalNs > 0;
    }

    /** The command that opens the subscription, for the first time or again, is about to be sent to the driver. */
    void onOpen(final long nowNs)
    {
        if (hasResponse)
        {
            intervalNs = Math.max(intervalNs, Math.min(2 * intervalNs, MAX_INTERVAL_NS));
        }
        openedNs = nowNs;
        hasResponse = false;
    }

    /** The driver has opened the subscription. Only the first call after {@link #onOpen} counts. */
    void onResponse(final long nowNs)
    {
        if (!hasResponse)
        {
            hasResponse = true;
            dueNs = nowNs + Math.max(intervalNs, IMAGE_PER_RESPONSE * (nowNs - openedNs));
        }
    }

    /** Whether a subscription that still has no image should be opened again. */
    boolean isDue(final long nowNs)
    {
        return isEnabled() && hasResponse && nowNs - dueNs > 0;
    }
}

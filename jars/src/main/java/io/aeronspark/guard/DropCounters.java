package io.aeronspark.guard;

import io.aeron.driver.MediaDriver;
import java.util.EnumMap;
import org.agrona.concurrent.status.AtomicCounter;

/**
 * Counts dropped frames, with one Aeron counter for each reason and direction of a driver. Drops are not logged,
 * because a flood would fill any log.
 */
final class DropCounters
{
    /** Type of the counters. Their key is empty; the label names direction and reason. */
    static final int COUNTER_TYPE_ID = 16723;

    private final EnumMap<DropReason, AtomicCounter> counters = new EnumMap<>(DropReason.class);

    /** Allocate the counters, on the driver's conductor thread. {@code direction} is "receiving" or "sending". */
    DropCounters(final String direction, final MediaDriver.Context context)
    {
        for (final DropReason reason : DropReason.values())
        {
            final String label = "guard dropped " + direction + ": " + reason.label();
            counters.put(reason, context.countersManager().newCounter(label, COUNTER_TYPE_ID));
        }
    }

    /** Count a dropped frame. On the receiver or sender thread, the only one that writes the counters. */
    void count(final DropReason reason)
    {
        counters.get(reason).incrementRelease();
    }

    /** Count a dropped frame; return false, so that a check can end with it. */
    boolean reject(final DropReason reason)
    {
        count(reason);
        return false;
    }
}

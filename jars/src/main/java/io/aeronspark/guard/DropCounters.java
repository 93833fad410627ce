package io.aeronspark.guard;

import io.aeron.driver.MediaDriver;
import java.util.EnumMap;
import java.util.Locale;
import org.agrona.concurrent.status.AtomicCounter;

/** What was dropped, one counter a reason and direction of a driver; nothing is logged, because a flood would fill any log. */
final class DropCounters
{
    /** Counter type; the key holds nothing, the label says all. */
    static final int COUNTER_TYPE_ID = 16723;

    /** Why. */
    enum Reason
    {
        /** Not a frame of Aeron's, or one whose fields contradict each other or the session. */
        INVALID,
        /** The source's network is denied, or not allowed. */
        NETWORK,
        /** A longer term than permitted. */
        TERM_LENGTH,
        /** A smaller or larger MTU than permitted. */
        MTU,
        /** Too many introductions a second. */
        RATE,
        /** Too many sessions or receivers on the endpoint. */
        TOTAL,
        /** Too many sessions or receivers of one source. */
        SOURCE,
        /** Nobody is registered for this session of a stream that is not open. */
        UNOWNED,
        /** Another address than the session's owner, or than the publication's peer. */
        FOREIGN,
        /** Nobody subscribes to this stream, or publishes this session. */
        UNWANTED,
        /** An answer that would have made us send more than we received; only for directions that receive. */
        BUDGET
    }

    private final EnumMap<Reason, AtomicCounter> counters = new EnumMap<>(Reason.class);

    /** Allocate the counters; on the driver's conductor thread. */
    DropCounters(final String direction, final MediaDriver.Context context)
    {
        for (final Reason reason : Reason.values())
        {
            final String label = "guard dropped " + direction + ": " + reason.name().toLowerCase(Locale.ROOT).replace('_', '-');
            counters.put(reason, context.countersManager().newCounter(label, COUNTER_TYPE_ID));
        }
    }

    /** Count one; always false, so that a check can end with it. */
    boolean count(final Reason reason)
    {
        counters.get(reason).incrementRelease();
        return false;
    }
}

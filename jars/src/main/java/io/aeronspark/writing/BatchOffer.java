package io.aeronspark.writing;

import io.aeron.ExclusivePublication;
import io.aeron.ReservedValueSupplier;
import java.util.concurrent.locks.LockSupport;
import org.agrona.DirectBuffer;
import org.agrona.UnsafeApi;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Offers many messages in one call, so that a Python process pays for one call and not for one per message.
 * Back-pressure is not an error: a call retries a message for a limited time and then returns how many messages were
 * taken, so that the caller decides whether to continue.
 * <p>
 * Only {@link #stopWaiting} may be called from any thread: an {@link ExclusivePublication} is not thread-safe.
 */
public final class BatchOffer implements ReservedValueSupplier
{
    private static final int MAX_SPINS = 20;
    private static final long MIN_PARK_NS = 10_000;
    /** The window of a fast receiver has room again within this time. */
    private static final long FAST_PARK_NS = 160_000;
    /**
     * After a longer wait, a park takes this part of the time waited: many senders that wait for slow receivers leave
     * the cores to them.
     */
    private static final int WAITED_SHARE = 4;
    private static final long MAX_PARK_NS = 25_000_000;

    private final ExclusivePublication publication;
    private final UnsafeBuffer message = new UnsafeBuffer(0, 0);
    private final UnsafeBuffer header = new UnsafeBuffer(0, 0);
    private long reserved;
    private long result;
    /** Since when Aeron has not taken a message, also in earlier calls; in nanoseconds, 0: it took the last one. */
    private long waitingSinceNs;
    private volatile boolean mayWait = true;
    private volatile Thread waiting;

    public BatchOffer(final ExclusivePublication publication)
    {
        this.publication = publication;
    }

    /**
     * Offer values {@code first} to {@code last - 1} of an Arrow binary column.
     *
     * @param offsetsAddress  of int32 offsets, the column's first value at index 0.
     * @param reservedAddress of int64 reserved values, or 0 for none.
     * @param timeoutNs       nanoseconds to retry one message under back-pressure.
     * @return how many messages were taken; if not all, {@link #result()} gives the reason.
     */
    public int offerValues(
        final long valuesAddress,
        final long offsetsAddress,
        final long reservedAddress,
        final int first,
        final int last,
        final long timeoutNs)
    {
        for (int row = first; row < last; row++)
        {
            final int begin = UnsafeApi.getInt(offsetsAddress + 4L * row);
            final int end = UnsafeApi.getInt(offsetsAddress + 4L * (row + 1));
            message.wrap(valuesAddress + begin, end - begin);
            reserved = reservedAddress == 0 ? 0 : UnsafeApi.getLong(reservedAddress + 8L * row);
            if (!offerOne(0, timeoutNs))
            {
                return row - first;
            }
        }
        return last - first;
    }

    /**
     * Offer one message made of a header and a payload.
     *
     * @param timeoutNs nanoseconds to retry it under back-pressure.
     * @return whether it was taken; if not, {@link #result()} gives the reason.
     */
    public boolean offerGathered(
        final long headerAddress,
        final int headerLength,
        final long payloadAddress,
        final int payloadLength,
        final long reservedValue,
        final long timeoutNs)
    {
        header.wrap(headerAddress, headerLength);
        message.wrap(payloadAddress, payloadLength);
        reserved = reservedValue;
        return offerOne(headerLength, timeoutNs);
    }

    /** The position behind the last message if it was taken, otherwise Aeron's negative result code for it. */
    public long result()
    {
        return result;
    }

    private boolean offerOne(final int headerLength, final long timeoutNs)
    {
        int tries = 0;
        long park = MIN_PARK_NS;
        long deadline = 0;
        while (true)
        {
            result = headerLength == 0 ?
                publication.offer(message, 0, message.capacity(), this) :
                publication.offer(header, 0, headerLength, message, 0, message.capacity(), this);
            if (result > 0)
            {
                waitingSinceNs = 0;
                return true;
            }
            if (result != ExclusivePublication.ADMIN_ACTION && result != ExclusivePublication.BACK_PRESSURED)
            {
                return false;
            }
            if (++tries > MAX_SPINS)
            {
                final long now = System.nanoTime();
                deadline = deadline == 0 ? now + timeoutNs : deadline;
                waitingSinceNs = waitingSinceNs == 0 ? now : waitingSinceNs;
                if (now - deadline >= 0 || !park(Math.min(park, deadline - now)))
                {
                    return false;
                }
                park = Math.max(
                    Math.min(2 * park, FAST_PARK_NS), Math.min((now - waitingSinceNs) / WAITED_SHARE, MAX_PARK_NS));
            }
            else
            {
                Thread.onSpinWait();
            }
        }
    }

    /** Wait for some time; return whether the caller may go on waiting. */
    private boolean park(final long parkNs)
    {
        waiting = Thread.currentThread(); // before the check, so that stopWaiting either finds it or is seen here
        try
        {
            if (mayWait)
            {
                LockSupport.parkNanos(this, parkNs);
            }
            return mayWait;
        }
        finally
        {
            waiting = null;
        }
    }

    /** Let a call that waits return now, and later calls without a wait. From any thread. */
    public void stopWaiting()
    {
        mayWait = false;
        LockSupport.unpark(waiting);
    }

    /** For Aeron, while it writes a frame: the reserved value of the message that is being offered. */
    @Override
    public long get(final DirectBuffer termBuffer, final int termOffset, final int frameLength)
    {
        return reserved;
    }
}

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
 * Not thread-safe, because its {@link ExclusivePublication} is not.
 */
public final class BatchOffer implements ReservedValueSupplier
{
    private static final int MAX_SPINS = 20;
    private static final long MIN_PARK_NS = 10_000;
    /**
     * Short compared with the time that a window lasts, and long enough to leave the core to the driver and the
     * receiver.
     */
    private static final long MAX_PARK_NS = 160_000;

    private final ExclusivePublication publication;
    private final UnsafeBuffer message = new UnsafeBuffer(0, 0);
    private final UnsafeBuffer header = new UnsafeBuffer(0, 0);
    private long reserved;
    private long result;

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
                if (now - deadline >= 0)
                {
                    return false;
                }
                LockSupport.parkNanos(park);
                park = Math.min(2 * park, MAX_PARK_NS);
            }
            else
            {
                Thread.onSpinWait();
            }
        }
    }

    /** For Aeron, while it writes a frame: the reserved value of the message that is being offered. */
    @Override
    public long get(final DirectBuffer termBuffer, final int termOffset, final int frameLength)
    {
        return reserved;
    }
}

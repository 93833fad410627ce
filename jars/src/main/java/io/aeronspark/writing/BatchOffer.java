package io.aeronspark.writing;

import io.aeron.ExclusivePublication;
import io.aeron.ReservedValueSupplier;
import java.util.concurrent.locks.LockSupport;
import org.agrona.DirectBuffer;
import org.agrona.UnsafeApi;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Offers many messages in one call. Back-pressure is a value: it is waited out for a given time and then returned, with the number of
 * messages that were taken, so that the caller decides how long it goes on.
 */
public final class BatchOffer implements ReservedValueSupplier
{
    private static final int SPINS = 20;
    private static final long SHORTEST_PARK_NS = 10_000;
    /** Small beside the time a window lasts, and long enough to leave the core to the one that is waited for. */
    private static final long LONGEST_PARK_NS = 160_000;

    private final ExclusivePublication publication;
    private final UnsafeBuffer message = new UnsafeBuffer(0, 0);
    private final UnsafeBuffer header = new UnsafeBuffer(0, 0);
    private long reserved;
    private long result;

    /** Offers to this publication; not thread-safe, as it is not. */
    public BatchOffer(final ExclusivePublication publication)
    {
        this.publication = publication;
    }

    /**
     * Offer values {@code first} to {@code last - 1} of an Arrow binary column.
     *
     * @param offsetsAddress  of int32 offsets, the column's first value at index 0.
     * @param reservedAddress of int64 reserved values, or 0 for none.
     * @param patienceNs      how long one message may be held up before the call returns.
     * @return how many were taken; {@link #result()} says why not more.
     */
    public int offerValues(
        final long valuesAddress,
        final long offsetsAddress,
        final long reservedAddress,
        final int first,
        final int last,
        final long patienceNs)
    {
        for (int row = first; row < last; row++)
        {
            final int begin = UnsafeApi.getInt(offsetsAddress + 4L * row);
            final int end = UnsafeApi.getInt(offsetsAddress + 4L * (row + 1));
            message.wrap(valuesAddress + begin, end - begin);
            reserved = reservedAddress == 0 ? 0 : UnsafeApi.getLong(reservedAddress + 8L * row);
            if (!offerOne(0, patienceNs))
            {
                return row - first;
            }
        }
        return last - first;
    }

    /**
     * Offer one message gathered from a header and a payload.
     *
     * @return whether it was taken; {@link #result()} says why not.
     */
    public boolean offerGathered(
        final long headerAddress,
        final int headerLength,
        final long payloadAddress,
        final int payloadLength,
        final long reservedValue,
        final long patienceNs)
    {
        header.wrap(headerAddress, headerLength);
        message.wrap(payloadAddress, payloadLength);
        reserved = reservedValue;
        return offerOne(headerLength, patienceNs);
    }

    /** The position after the last message taken, or Aeron's negative result of the one that was not. */
    public long result()
    {
        return result;
    }

    private boolean offerOne(final int headerLength, final long patienceNs)
    {
        int tries = 0;
        long park = SHORTEST_PARK_NS;
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
            if (++tries > SPINS)
            {
                final long now = System.nanoTime();
                deadline = deadline == 0 ? now + patienceNs : deadline;
                if (now - deadline >= 0)
                {
                    return false;
                }
                LockSupport.parkNanos(park);
                park = Math.min(2 * park, LONGEST_PARK_NS);
            }
            else
            {
                Thread.onSpinWait();
            }
        }
    }

    @Override
    public long get(final DirectBuffer termBuffer, final int termOffset, final int frameLength)
    {
        return reserved;
    }
}

package io.aeronspark.reading;

import static io.aeron.logbuffer.FrameDescriptor.BEGIN_FRAG_FLAG;
import static io.aeron.logbuffer.FrameDescriptor.END_FRAG_FLAG;
import static io.aeron.protocol.DataHeaderFlyweight.HEADER_LENGTH;
import static io.aeron.protocol.DataHeaderFlyweight.RESERVED_VALUE_OFFSET;

import io.aeron.Image;
import org.agrona.DirectBuffer;
import org.agrona.UnsafeApi;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Moves the messages of one recording from an image into memory laid out as Arrow columns: value offsets (int32, rows + 1), value
 * bytes, positions (int64) and reserved values (int64), at addresses the caller owns.
 * <p>
 * A message that is not finished when the memory is full stays behind the last complete row; {@link #carry} takes it along into the
 * next memory. Nothing is written before it is known to fit: the block asked for is never longer than the room left.
 */
public final class RowAssembler extends FrameScanner
{
    private final UnsafeBuffer values = new UnsafeBuffer(0, 0);
    private long offsetsAddress;
    private long positionsAddress;
    private long reservedAddress;
    private int rowCapacity;

    private int rows;
    private int written;
    private int complete;
    private boolean inMessage;
    private long messagePosition;
    private long messageReserved;
    private long discarded;

    /** A drain for images of recordings with this geometry. */
    public RowAssembler(final int initialTermId, final int termLength)
    {
        super(initialTermId, termLength);
    }

    /**
     * Begin a new batch in the caller's memory; an unfinished message of the last one is copied to its front.
     *
     * @param valuesAddress    of {@code valuesCapacity} bytes, more than {@link #partialLength()}.
     * @param offsetsAddress   of {@code 4 * (rowCapacity + 1)} bytes.
     * @param positionsAddress of {@code 8 * rowCapacity} bytes.
     * @param reservedAddress  of {@code 8 * rowCapacity} bytes.
     */
    public void carry(
        final long valuesAddress,
        final int valuesCapacity,
        final long offsetsAddress,
        final long positionsAddress,
        final long reservedAddress,
        final int rowCapacity)
    {
        final int partial = partialLength();
        if (partial > valuesCapacity)
        {
            throw new IllegalArgumentException("an unfinished message of " + partial + " bytes does not fit " + valuesCapacity);
        }
        if (partial > 0)
        {
            UnsafeApi.copyMemory(values.addressOffset() + complete, valuesAddress, partial);
        }
        values.wrap(valuesAddress, valuesCapacity);
        this.offsetsAddress = offsetsAddress;
        this.positionsAddress = positionsAddress;
        this.reservedAddress = reservedAddress;
        this.rowCapacity = rowCapacity;
        rows = 0;
        complete = 0;
        written = partial;
        UnsafeApi.putInt(offsetsAddress, 0);
    }

    /**
     * Drain the image until the memory is full, the image has nothing more now, or it reached {@code limitPosition}.
     *
     * @return whether the memory is full, so that the caller must take its rows.
     */
    public boolean drain(final Image image, final long limitPosition)
    {
        while (image.position() < limitPosition)
        {
            final int room = room();
            if (room <= 0)
            {
                return true;
            }
            final long before = image.position();
            image.blockPoll(this, room);
            if (image.position() == before)
            {
                // Nothing came, or the next frame is longer than the room: only the latter means full.
                return room < FULL_BELOW && (rows > 0 || written > 0);
            }
        }
        return false;
    }

    /**
     * Drain bytes of a recording until the memory is full, they end, or {@code limitPosition} is reached.
     *
     * @return whether the memory is full, so that the caller must take its rows.
     */
    public boolean drain(final RecordingBytes bytes, final long limitPosition)
    {
        while (bytes.position() < Math.min(limitPosition, bytes.end()))
        {
            final int room = room();
            if (room <= 0)
            {
                return true;
            }
            if (bytes.scan(this, room, limitPosition) == 0)
            {
                return room < FULL_BELOW && (rows > 0 || written > 0);
            }
        }
        return false;
    }

    /** A frame is never longer than this: Aeron's largest MTU, rounded up. */
    private static final int FULL_BELOW = 64 * 1024;

    private int room()
    {
        // A row takes at least one frame header of the block, so this many bytes hold at most the rows left.
        final long byRows = (long)(rowCapacity - rows) * HEADER_LENGTH;
        final long room = Math.min(values.capacity() - written, byRows);
        return (int)Math.min(room, MAX_BLOCK_LENGTH);
    }

    /** Complete rows in the caller's memory. */
    public int rows()
    {
        return rows;
    }

    /** Bytes of the complete rows' values. */
    public int valueBytes()
    {
        return complete;
    }

    /** Bytes of the unfinished message behind them. */
    public int partialLength()
    {
        return inMessage ? written - complete : 0;
    }

    /** Fragments that belonged to no complete message: a publisher died in the middle of one. */
    public long discarded()
    {
        return discarded;
    }

    @Override
    void onFrame(final DirectBuffer buffer, final int offset, final int payloadLength, final byte flags, final long position)
    {
        if ((flags & BEGIN_FRAG_FLAG) != 0)
        {
            if (inMessage)
            {
                discarded++;
            }
            inMessage = true;
            written = complete;
            messagePosition = position;
            messageReserved = buffer.getLong(offset + RESERVED_VALUE_OFFSET);
        }
        else if (!inMessage)
        {
            discarded++;
            return;
        }
        buffer.getBytes(offset + HEADER_LENGTH, values, written, payloadLength);
        written += payloadLength;
        if ((flags & END_FRAG_FLAG) != 0)
        {
            UnsafeApi.putLong(positionsAddress + 8L * rows, messagePosition);
            UnsafeApi.putLong(reservedAddress + 8L * rows, messageReserved);
            rows++;
            complete = written;
            UnsafeApi.putInt(offsetsAddress + 4L * rows, complete);
            inMessage = false;
        }
    }

    @Override
    void onPadding(final long position, final long end)
    {
        // Padding carries no rows.
    }
}

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
 * Assembles the messages of one recording from their fragments and writes them as rows of Arrow columns into memory
 * that the caller allocated: value offsets (int32, rows + 1), value bytes, positions (int64) and reserved values
 * (int64).
 * <p>
 * If the memory is full before a message is complete, its bytes stay behind the last complete row, and {@link #carry}
 * copies them into the next memory. A block that is asked for is never longer than the room left, so nothing is written
 * beyond the memory. Not thread-safe.
 */
public final class RowAssembler extends FrameScanner
{
    /** Bytes of the longest frame: Aeron's largest MTU, rounded up. */
    private static final int MAX_FRAME_LENGTH = 64 * 1024;

    private final UnsafeBuffer values = new UnsafeBuffer(0, 0);
    private long offsetsAddress;
    private long positionsAddress;
    private long reservedAddress;
    private int rowCapacity;

    private int rows;
    private int writtenBytes;
    private int completeBytes;
    private boolean inMessage;
    private long messagePosition;
    private long messageReserved;

    /** For images and bytes of a recording with this initial term id and this term length in bytes. */
    public RowAssembler(final int initialTermId, final int termLength)
    {
        super(initialTermId, termLength);
    }

    /**
     * Begin a new batch in the caller's memory, which must stay allocated until the next call of this method. The bytes
     * of an unfinished message are copied to its front.
     *
     * @param valuesAddress    of {@code valuesCapacity} bytes, at least {@link #partialLength()}.
     * @param offsetsAddress   of {@code 4 * (rowCapacity + 1)} bytes.
     * @param positionsAddress of {@code 8 * rowCapacity} bytes.
     * @param reservedAddress  of {@code 8 * rowCapacity} bytes.
     * @throws IllegalArgumentException if the unfinished message does not fit; nothing has changed then.
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
            throw new IllegalArgumentException(
                "an unfinished message of " + partial + " bytes does not fit " + valuesCapacity);
        }
        if (partial > 0)
        {
            UnsafeApi.copyMemory(values.addressOffset() + completeBytes, valuesAddress, partial);
        }
        values.wrap(valuesAddress, valuesCapacity);
        this.offsetsAddress = offsetsAddress;
        this.positionsAddress = positionsAddress;
        this.reservedAddress = reservedAddress;
        this.rowCapacity = rowCapacity;
        rows = 0;
        completeBytes = 0;
        writtenBytes = partial;
        UnsafeApi.putInt(offsetsAddress, 0);
    }

    /**
     * Drain the image until the memory is full, the image has nothing more now, or it has reached
     * {@code limitPosition}.
     *
     * @return whether the memory is full, so that the caller must take its rows and {@link #carry} on in other memory.
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
                // The image had nothing, or its next frame is longer than the room: only the latter means full.
                return room < MAX_FRAME_LENGTH && (rows > 0 || writtenBytes > 0);
            }
        }
        return false;
    }

    /**
     * Drain bytes of a recording until the memory is full, the bytes end, or {@code limitPosition} is reached.
     *
     * @return whether the memory is full, so that the caller must take its rows and {@link #carry} on in other memory.
     * @throws IllegalStateException if a checksum does not match.
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
                return room < MAX_FRAME_LENGTH && (rows > 0 || writtenBytes > 0);
            }
        }
        return false;
    }

    private int room()
    {
        // Each row takes at least one frame header of the block, so a block of this length cannot exceed the rows left.
        final long byRows = (long)(rowCapacity - rows) * HEADER_LENGTH;
        final long room = Math.min(values.capacity() - writtenBytes, byRows);
        return (int)Math.min(room, MAX_BLOCK_LENGTH);
    }

    /** Complete rows in the caller's memory. */
    public int rows()
    {
        return rows;
    }

    /** Bytes of the unfinished message behind the complete rows. */
    public int partialLength()
    {
        return inMessage ? writtenBytes - completeBytes : 0;
    }

    @Override
    void onFrame(
        final DirectBuffer buffer, final int offset, final int payloadLength, final byte flags, final long position)
    {
        if ((flags & BEGIN_FRAG_FLAG) != 0)
        {
            // Bytes of a message without an end are overwritten: its publisher died before it sent the rest.
            inMessage = true;
            writtenBytes = completeBytes;
            messagePosition = position;
            messageReserved = buffer.getLong(offset + RESERVED_VALUE_OFFSET);
        }
        else if (!inMessage)
        {
            return; // The message began before the range.
        }
        buffer.getBytes(offset + HEADER_LENGTH, values, writtenBytes, payloadLength);
        writtenBytes += payloadLength;
        if ((flags & END_FRAG_FLAG) != 0)
        {
            UnsafeApi.putLong(positionsAddress + 8L * rows, messagePosition);
            UnsafeApi.putLong(reservedAddress + 8L * rows, messageReserved);
            rows++;
            completeBytes = writtenBytes;
            UnsafeApi.putInt(offsetsAddress + 4L * rows, completeBytes);
            inMessage = false;
        }
    }

    @Override
    void onPadding(final long position, final long end)
    {
        // Padding carries no data.
    }
}

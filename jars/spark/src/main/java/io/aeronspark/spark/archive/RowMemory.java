package io.aeronspark.spark.archive;

import io.aeronspark.reading.RowAssembler;
import java.nio.ByteBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Direct memory for one batch of messages: value bytes, the offsets of their ends, positions and reserved values. It is
 * used again for the next batch. Nothing frees it explicitly, because another thread can read rows after their task has
 * ended.
 * <p>
 * Not thread-safe.
 */
public final class RowMemory
{
    /** Messages in a batch. */
    static final int ROWS = 8 * 1024;

    /** Value bytes of a batch: more do not make Spark faster. */
    private static final int VALUE_BYTES = 1024 * 1024;

    /** Room for the next fragment of a message that does not fit: Aeron's largest MTU, rounded up. */
    private static final int MAX_FRAME_BYTES = 64 * 1024;

    private UnsafeBuffer values = allocate(VALUE_BYTES);
    private final UnsafeBuffer offsets = allocate(Integer.BYTES * (ROWS + 1));
    private final UnsafeBuffer positions = allocate(Long.BYTES * ROWS);
    private final UnsafeBuffer reserved = allocate(Long.BYTES * ROWS);

    /** Let the assembler write the next batch, whose first row can be complete in part. */
    public void begin(final RowAssembler assembler)
    {
        final int partial = assembler.partialLength();
        // A message that does not fit yet needs twice its bytes at most.
        final long wanted = Math.min(2L * partial + MAX_FRAME_BYTES, Integer.MAX_VALUE - 8);
        final UnsafeBuffer next = wanted > values.capacity() ? allocate((int)wanted) : values;
        assembler.carry(
            next.addressOffset(),
            next.capacity(),
            offsets.addressOffset(),
            positions.addressOffset(),
            reserved.addressOffset(),
            ROWS);
        values = next;
    }

    /** Address of the value bytes of the batch. */
    public long valuesAddress()
    {
        return values.addressOffset();
    }

    /** Offset in the value bytes at which a row begins, and the row before it ends. */
    public int offset(final int row)
    {
        return offsets.getInt(row * Integer.BYTES);
    }

    /** Position of a row. */
    public long position(final int row)
    {
        return positions.getLong(row * Long.BYTES);
    }

    /** Reserved value of a row. */
    public long reserved(final int row)
    {
        return reserved.getLong(row * Long.BYTES);
    }

    /** Bytes of a row. */
    public byte[] value(final int row)
    {
        final int begin = offset(row);
        final byte[] value = new byte[offset(row + 1) - begin];
        values.getBytes(begin, value);
        return value;
    }

    private static UnsafeBuffer allocate(final int length)
    {
        return new UnsafeBuffer(ByteBuffer.allocateDirect(length));
    }
}

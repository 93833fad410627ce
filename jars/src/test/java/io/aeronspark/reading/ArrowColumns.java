package io.aeronspark.reading;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.agrona.concurrent.UnsafeBuffer;

/** Memory laid out as pyarrow passes it to Java: the buffers of some binary values, by address. */
public final class ArrowColumns
{
    public final UnsafeBuffer values;
    public final UnsafeBuffer offsets;
    public final UnsafeBuffer positions;
    public final UnsafeBuffer reserved;

    public ArrowColumns(final int valuesCapacity, final int rowCapacity)
    {
        values = direct(valuesCapacity);
        offsets = direct(4 * (rowCapacity + 1));
        positions = direct(8 * rowCapacity);
        reserved = direct(8 * rowCapacity);
    }

    /** A column of these values. */
    public static ArrowColumns of(final String... texts)
    {
        final ArrowColumns memory = new ArrowColumns(1 << 16, texts.length);
        int end = 0;
        for (int row = 0; row < texts.length; row++)
        {
            final byte[] bytes = texts[row].getBytes(StandardCharsets.UTF_8);
            memory.values.putBytes(end, bytes);
            end += bytes.length;
            memory.offsets.putInt(4 * (row + 1), end);
            memory.reserved.putLong(8 * row, 1000 + row);
        }
        return memory;
    }

    public static UnsafeBuffer direct(final int capacity)
    {
        return new UnsafeBuffer(ByteBuffer.allocateDirect(Math.max(8, capacity)).order(ByteOrder.nativeOrder()));
    }

    /** Begin a batch of the assembler in this memory. */
    public void beginBatch(final RowAssembler assembler)
    {
        assembler.carry(
            values.addressOffset(),
            values.capacity(),
            offsets.addressOffset(),
            positions.addressOffset(),
            reserved.addressOffset(),
            positions.capacity() / 8);
    }

    /** The rows that the assembler wrote here, as texts. */
    public List<String> rows(final RowAssembler assembler)
    {
        final List<String> rows = new ArrayList<>();
        for (int row = 0; row < assembler.rows(); row++)
        {
            final int begin = offsets.getInt(4 * row);
            final byte[] bytes = new byte[offsets.getInt(4 * (row + 1)) - begin];
            values.getBytes(begin, bytes);
            rows.add(new String(bytes, StandardCharsets.UTF_8));
        }
        return rows;
    }
}

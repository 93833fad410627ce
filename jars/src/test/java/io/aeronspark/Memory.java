package io.aeronspark;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.agrona.concurrent.UnsafeBuffer;

/** Memory as pyarrow hands it over: the columns of some values, by address. */
final class Memory
{
    final UnsafeBuffer values;
    final UnsafeBuffer offsets;
    final UnsafeBuffer positions;
    final UnsafeBuffer reserved;

    Memory(final int valuesCapacity, final int rowCapacity)
    {
        values = direct(valuesCapacity);
        offsets = direct(4 * (rowCapacity + 1));
        positions = direct(8 * rowCapacity);
        reserved = direct(8 * rowCapacity);
    }

    /** A column of these values. */
    static Memory of(final String... texts)
    {
        final Memory memory = new Memory(1 << 16, texts.length);
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

    static UnsafeBuffer direct(final int capacity)
    {
        return new UnsafeBuffer(ByteBuffer.allocateDirect(Math.max(8, capacity)).order(ByteOrder.nativeOrder()));
    }

    /** Let a drain fill this memory. */
    void carry(final FragmentDrain drain)
    {
        drain.carry(
            values.addressOffset(), values.capacity(), offsets.addressOffset(), positions.addressOffset(), reserved.addressOffset(),
            positions.capacity() / 8);
    }

    /** The rows that a drain has left here, as texts. */
    List<String> rows(final FragmentDrain drain)
    {
        final List<String> rows = new ArrayList<>();
        for (int row = 0; row < drain.rows(); row++)
        {
            final int begin = offsets.getInt(4 * row);
            final byte[] bytes = new byte[offsets.getInt(4 * (row + 1)) - begin];
            values.getBytes(begin, bytes);
            rows.add(new String(bytes, StandardCharsets.UTF_8));
        }
        return rows;
    }
}

package io.aeronspark.sbe;

import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/** A number of each row: where it came from, or what its header says. A negative number of a header is null. */
final class RowColumn extends Column
{
    /** The number of a row. */
    interface Number
    {
        long of(MessageRows rows, int row);
    }

    private final OutputBuffer data = new OutputBuffer();
    private final MessageRows rows;
    private final int width;
    private final boolean isNullable;
    private final Number number;

    RowColumn(final MessageRows rows, final int width, final boolean isNullable, final Number number)
    {
        this.rows = rows;
        this.width = width;
        this.isNullable = isNullable;
        this.number = number;
    }

    @Override
    void reserve(final DirectBuffer source, final OutputLayout layout)
    {
        reserveValidity(layout, rows.count);
        layout.reserve(data, (long)width * length);
        data.used = width * length;
    }

    @Override
    void addPlaces(final Places places)
    {
        addOwn(places, data);
    }

    @Override
    void fill(final DirectBuffer source, final UnsafeBuffer out)
    {
        out.setMemory(validity.offset, validity.used, (byte)0);
        for (int row = 0; row < length; row++)
        {
            final long value = number.of(rows, row);
            if (isNullable && value < 0)
            {
                nulls++;
            }
            else
            {
                setBit(out, validity.offset, row);
            }
            if (width == 4)
            {
                out.putInt(data.offset + 4 * row, (int)value);
            }
            else
            {
                out.putLong(data.offset + 8 * row, value);
            }
        }
    }
}

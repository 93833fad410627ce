package io.aeronspark.sbe;

/**
 * A number of each row: where it came from, or what its header says. A negative number of a header is null; a column
 * without nulls needs no validity bits.
 */
final class RowColumn extends Column
{
    /** Finds the number of a row. */
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
    void reserve(final Memory source, final OutputLayout layout)
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
    void fill(final Memory source, final Memory out)
    {
        out.clear(validity.offset, validity.used);
        for (int row = 0; row < length; row++)
        {
            final long value = number.of(rows, row);
            if (isNullable && value < 0)
            {
                nulls++;
            }
            else if (isNullable)
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

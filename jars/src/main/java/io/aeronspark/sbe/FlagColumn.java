package io.aeronspark.sbe;

/** One bit of a set as a boolean. */
final class FlagColumn extends ValueColumn
{
    private final OutputBuffer data = new OutputBuffer();
    private final int bit;

    FlagColumn(final Value value, final Scratch scratch, final int bit)
    {
        super(value, scratch);
        this.bit = bit;
    }

    @Override
    void reserve(final Memory source, final OutputLayout layout)
    {
        reserveValidity(layout, value.level.count);
        layout.reserve(data, validity.used);
        data.used = validity.used;
    }

    @Override
    void addPlaces(final Places places)
    {
        addOwn(places, data);
    }

    @Override
    void write(final Memory out, final int from, final int rows, final long[] values, final Validity valid)
    {
        for (int first = 0; first < rows; first += 64)
        {
            long bits = 0;
            for (int row = first; row < Math.min(rows, first + 64); row++)
            {
                bits |= (values[row] >>> bit & 1) << row;
            }
            out.putLong(data.offset + (from + first) / 8, bits);
        }
    }
}

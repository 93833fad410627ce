package io.aeronspark.sbe;

/** Numbers of 1, 2, 4, 8 or 16 bytes: integers as they are, dates, and the bits of floats. 16 bytes are a decimal. */
final class NumberColumn extends ValueColumn
{
    private final OutputBuffer data = new OutputBuffer();
    private final int width;

    NumberColumn(final Value value, final Scratch scratch, final int width)
    {
        super(value, scratch);
        this.width = width;
    }

    @Override
    void reserve(final Memory source, final OutputLayout layout)
    {
        reserveValidity(layout, value.level.count);
        layout.reserve(data, (long)length * width);
        data.used = length * width;
    }

    @Override
    void addPlaces(final Places places)
    {
        addOwn(places, data);
    }

    @Override
    void write(final Memory out, final int from, final int rows, final long[] values, final Validity valid)
    {
        int at = data.offset + from * width;
        switch (width)
        {
            case 1:
                for (int row = 0; row < rows; row++)
                {
                    out.putByte(at++, (byte)values[row]);
                }
                break;
            case 2:
                for (int row = 0; row < rows; row++, at += 2)
                {
                    out.putShort(at, (short)values[row]);
                }
                break;
            case 4:
                for (int row = 0; row < rows; row++, at += 4)
                {
                    out.putInt(at, (int)values[row]);
                }
                break;
            case 8:
                for (int row = 0; row < rows; row++, at += 8)
                {
                    out.putLong(at, values[row]);
                }
                break;
            default:
                writeDecimals(out, at, rows, values);
        }
    }

    private void writeDecimals(final Memory out, final int start, final int rows, final long[] values)
    {
        final long sign = value.primitive == Primitive.UINT64 ? 0 : -1L;
        int at = start;
        for (int row = 0; row < rows; row++, at += 16)
        {
            out.putLong(at, values[row]);
            out.putLong(at + 8, values[row] >> 63 & sign);
        }
    }
}

package io.aeronspark.sbe;

/** Times in microseconds, of times in seconds (unit 0), milli- (3), micro- (6) or nanoseconds (9), which are cut. */
final class TimestampColumn extends ValueColumn implements ValueCheck
{
    private static final long[] FACTORS = {1_000_000, 0, 0, 1_000, 0, 0, 1};

    private final OutputBuffer data = new OutputBuffer();
    private final int unit;
    private final String name;

    TimestampColumn(final Value value, final Scratch scratch, final int unit, final String name)
    {
        super(value, scratch);
        this.unit = unit;
        this.name = name;
    }

    /** Whether a time of this unit can be too large for microseconds. */
    boolean needsCheck()
    {
        return unit < 6 || (unit == 6 && value.primitive == Primitive.UINT64);
    }

    @Override
    public boolean fits(final Memory source, final int base, final int version)
    {
        if (value.since > version)
        {
            return true;
        }
        final long time = value.readOne(source, base);
        if (value.isNull(time))
        {
            return true;
        }
        final long factor = FACTORS[unit];
        return (time >= 0 || value.primitive != Primitive.UINT64) &&
            Math.multiplyHigh(time, factor) == time * factor >> 63;
    }

    @Override
    public String name()
    {
        return name;
    }

    @Override
    void reserve(final Memory source, final OutputLayout layout)
    {
        reserveValidity(layout, value.level.count);
        layout.reserve(data, 8L * length);
        data.used = 8 * length;
    }

    @Override
    void addPlaces(final Places places)
    {
        addOwn(places, data);
    }

    @Override
    void write(final Memory out, final int from, final int rows, final long[] values, final Validity valid)
    {
        int at = data.offset + 8 * from;
        if (unit < 9)
        {
            final long factor = FACTORS[unit];
            for (int row = 0; row < rows; row++, at += 8)
            {
                out.putLong(at, values[row] * factor);
            }
            return;
        }
        final boolean isUnsigned = value.primitive == Primitive.UINT64;
        for (int row = 0; row < rows; row++, at += 8)
        {
            final long time = values[row];
            out.putLong(at, isUnsigned && time < 0 ? Long.divideUnsigned(time, 1000) : Math.floorDiv(time, 1000L));
        }
    }
}

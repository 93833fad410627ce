package io.aeronspark.sbe;

import java.math.BigInteger;

/** Decimals of a mantissa to which {@code digits} zeros are appended, because their constant exponent is positive. */
final class DecimalColumn extends ValueColumn
{
    private final OutputBuffer data = new OutputBuffer();
    private final BigInteger factor;

    DecimalColumn(final Value value, final Scratch scratch, final int digits)
    {
        super(value, scratch);
        factor = BigInteger.TEN.pow(digits);
    }

    @Override
    void reserve(final Memory source, final OutputLayout layout)
    {
        reserveValidity(layout, value.level.count);
        layout.reserve(data, 16L * length);
        data.used = 16 * length;
    }

    @Override
    void addPlaces(final Places places)
    {
        addOwn(places, data);
    }

    @Override
    void write(final Memory out, final int from, final int rows, final long[] values, final Validity valid)
    {
        for (int row = 0; row < rows; row++)
        {
            put(out, data.offset + 16 * (from + row), integer(values[row], value.primitive).multiply(factor));
        }
    }

    /** The integer of a value as {@link Primitive#read} returns it. */
    static BigInteger integer(final long value, final int primitive)
    {
        return primitive == Primitive.UINT64 && value < 0 ?
            BigInteger.valueOf(value).add(BigInteger.ONE.shiftLeft(64)) :
            BigInteger.valueOf(value);
    }

    /** Write an integer of at most 127 bits as Arrow's decimal of 16 bytes. */
    static void put(final Memory out, final int at, final BigInteger number)
    {
        out.putLong(at, number.longValue());
        out.putLong(at + 8, number.shiftRight(64).longValue());
    }
}

package io.aeronspark.sbe;

import java.math.BigDecimal;
import java.math.BigInteger;

/**
 * Decimals of a mantissa and an exponent, which may be on the wire, as doubles or as decimals of one precision and
 * scale. A value that such a decimal cannot hold exactly makes its message malformed.
 */
final class ScaledColumn extends Column implements ValueCheck
{
    private static final double[] POWERS = {
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
        1e20, 1e21, 1e22};
    private static final long EXACT_DOUBLE = 1L << 53;
    private static final int MAX_DIGITS = 40;
    /** With a larger exponent, any double is infinite; with a smaller one, zero. */
    private static final long MAX_EXPONENT = 1000;

    private final OutputBuffer data = new OutputBuffer();
    private final Value mantissa;
    private final Value exponent;
    private final boolean isConstant;
    private final int constant;
    private final int precision;
    private final int scale;
    private final String name;

    ScaledColumn(
        final Value mantissa,
        final Value exponent,
        final boolean isConstant,
        final int constant,
        final int precision,
        final int scale,
        final String name)
    {
        this.mantissa = mantissa;
        this.exponent = exponent;
        this.isConstant = isConstant;
        this.constant = constant;
        this.precision = precision;
        this.scale = scale;
        this.name = name;
    }

    /** Whether values have to fit a decimal. */
    boolean needsCheck()
    {
        return precision > 0;
    }

    @Override
    public String name()
    {
        return name;
    }

    @Override
    public boolean fits(final Memory source, final int base, final int version)
    {
        if (isAbsent(version) || isNull(source, base))
        {
            return true;
        }
        final BigInteger unscaled = unscaled(source, base);
        return unscaled != null && unscaled.abs().compareTo(BigInteger.TEN.pow(precision)) < 0;
    }

    private boolean isAbsent(final int version)
    {
        return mantissa.since > version || (!isConstant && exponent.since > version);
    }

    private boolean isNull(final Memory source, final int base)
    {
        return mantissa.isNull(mantissa.readOne(source, base)) ||
            (!isConstant && exponent.isNull(exponent.readOne(source, base)));
    }

    private long exponent(final Memory source, final int base)
    {
        return isConstant ? constant : exponent.readOne(source, base);
    }

    /** The value times ten to the power of the scale, or null if that is not an integer that a decimal can hold. */
    private BigInteger unscaled(final Memory source, final int base)
    {
        final BigInteger number = DecimalColumn.integer(mantissa.readOne(source, base), mantissa.primitive);
        if (number.signum() == 0)
        {
            return number;
        }
        final long exponent = exponent(source, base);
        if (exponent < -2L * MAX_DIGITS || exponent > MAX_DIGITS)
        {
            return null;
        }
        final int shift = (int)exponent + scale;
        if (shift >= 0)
        {
            return number.multiply(BigInteger.TEN.pow(shift));
        }
        final BigInteger[] parts = number.divideAndRemainder(BigInteger.TEN.pow(-shift));
        return parts[1].signum() == 0 ? parts[0] : null;
    }

    @Override
    void reserve(final Memory source, final OutputLayout layout)
    {
        final int width = precision > 0 ? 16 : 8;
        reserveValidity(layout, mantissa.level.count);
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
        final Level level = mantissa.level;
        out.clear(validity.offset, validity.used);
        for (int row = 0; row < length; row++)
        {
            final int base = level.bases[row];
            if (base < 0 || isAbsent(level.versions[row]) || isNull(source, base))
            {
                nulls++;
                continue;
            }
            setBit(out, validity.offset, row);
            if (precision > 0)
            {
                DecimalColumn.put(out, data.offset + 16 * row, unscaled(source, base));
            }
            else
            {
                out.putDouble(data.offset + 8 * row, toDouble(source, base));
            }
        }
    }

    private double toDouble(final Memory source, final int base)
    {
        final long number = mantissa.readOne(source, base);
        final long exponent = exponent(source, base);
        // In these limits both are exact as doubles, so the one operation rounds correctly.
        if (-EXACT_DOUBLE <= number && number <= EXACT_DOUBLE && -22 <= exponent && exponent <= 22 &&
            (number >= 0 || mantissa.primitive != Primitive.UINT64))
        {
            return exponent < 0 ? number / POWERS[(int)-exponent] : number * POWERS[(int)exponent];
        }
        final int limited = (int)Math.max(-MAX_EXPONENT, Math.min(MAX_EXPONENT, exponent));
        return new BigDecimal(DecimalColumn.integer(number, mantissa.primitive), -limited).doubleValue();
    }
}

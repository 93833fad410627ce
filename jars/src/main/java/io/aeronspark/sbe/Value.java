package io.aeronspark.sbe;

/** A primitive value of each entry of a level: its place, its type, the version it came with, and its null value. */
final class Value
{
    /** Rows that are read at a time: their values stay in the processor's first cache. */
    static final int CHUNK = 1024;

    private static final int NULL_IS_NAN = 2;

    final Level level;
    final int offset;
    final int since;
    final int primitive;
    private final int nullKind;
    private final long nullValue;
    private final boolean isBigEndian;

    Value(final TableReader table, final Level[] levels, final Level elements, final boolean isBigEndian)
    {
        final int number = table.next();
        level = number < 0 ? elements : levels[number];
        offset = table.next();
        since = table.next();
        primitive = table.next();
        nullKind = table.next();
        nullValue = table.nextLong();
        this.isBigEndian = isBigEndian;
    }

    /** Read one value, of a block that has it. */
    long readOne(final Memory source, final int base)
    {
        return Primitive.read(source, base + offset, primitive, isBigEndian);
    }

    boolean isNull(final long value)
    {
        return switch (nullKind)
        {
            case 0 -> false;
            case NULL_IS_NAN -> isNaN(value);
            default -> value == nullValue || (primitive >= Primitive.FLOAT && isEqualFloat(value));
        };
    }

    /** Read the values of {@code rows} entries from {@code from}, and which of them are present and not null. */
    void read(final Memory source, final int from, final int rows, final long[] values, final Validity valid)
    {
        valid.setAll(rows);
        if (level.isEverywhere(since))
        {
            readAll(source, from, rows, values);
        }
        else
        {
            for (int row = 0; row < rows; row++)
            {
                if (level.isPresent(from + row, since))
                {
                    values[row] = readOne(source, level.bases[from + row]);
                }
                else
                {
                    values[row] = 0;
                    valid.clear(row);
                }
            }
        }
        if (nullKind != 0)
        {
            clearNulls(rows, values, valid);
        }
    }

    private void clearNulls(final int rows, final long[] values, final Validity valid)
    {
        if (primitive >= Primitive.FLOAT)
        {
            for (int row = 0; row < rows; row++)
            {
                if (isNull(values[row]))
                {
                    valid.clear(row);
                }
            }
            return;
        }
        // Without a branch for each row: whether a value is null is hard to predict.
        final long wanted = nullValue;
        for (int word = 0, from = 0; from < rows; word++, from += 64)
        {
            long bits = 0;
            for (int row = from, end = Math.min(rows, from + 64); row < end; row++)
            {
                bits |= (values[row] != wanted ? 1L : 0L) << row;
            }
            valid.words[word] &= bits;
        }
    }

    private boolean isNaN(final long value)
    {
        return primitive == Primitive.FLOAT ?
            Float.isNaN(Float.intBitsToFloat((int)value)) :
            Double.isNaN(Double.longBitsToDouble(value));
    }

    private boolean isEqualFloat(final long value)
    {
        return primitive == Primitive.FLOAT ?
            Float.intBitsToFloat((int)value) == Float.intBitsToFloat((int)nullValue) :
            Double.longBitsToDouble(value) == Double.longBitsToDouble(nullValue);
    }

    // One loop for each width: a switch for each value would take longer than the rest.
    private void readAll(final Memory source, final int from, final int rows, final long[] values)
    {
        final int[] bases = level.bases;
        switch (primitive)
        {
            case Primitive.INT8 -> readBytes(source, bases, from, rows, values, -1L);
            case Primitive.CHAR, Primitive.UINT8 -> readBytes(source, bases, from, rows, values, 0xFF);
            case Primitive.INT16 -> readShorts(source, bases, from, rows, values, -1L);
            case Primitive.UINT16 -> readShorts(source, bases, from, rows, values, 0xFFFF);
            case Primitive.INT32, Primitive.FLOAT -> readInts(source, bases, from, rows, values, -1L);
            case Primitive.UINT32 -> readInts(source, bases, from, rows, values, 0xFFFF_FFFFL);
            default -> readLongs(source, bases, from, rows, values);
        }
    }

    private void readBytes(
        final Memory source, final int[] bases, final int from, final int rows, final long[] values,
        final long mask)
    {
        for (int row = 0; row < rows; row++)
        {
            values[row] = source.getByte(bases[from + row] + offset) & mask;
        }
    }

    private void readShorts(
        final Memory source, final int[] bases, final int from, final int rows, final long[] values,
        final long mask)
    {
        if (isBigEndian)
        {
            for (int row = 0; row < rows; row++)
            {
                values[row] = source.getShort(bases[from + row] + offset, true) & mask;
            }
            return;
        }
        for (int row = 0; row < rows; row++)
        {
            values[row] = source.getShort(bases[from + row] + offset, false) & mask;
        }
    }

    private void readInts(
        final Memory source, final int[] bases, final int from, final int rows, final long[] values,
        final long mask)
    {
        if (isBigEndian)
        {
            for (int row = 0; row < rows; row++)
            {
                values[row] = source.getInt(bases[from + row] + offset, true) & mask;
            }
            return;
        }
        for (int row = 0; row < rows; row++)
        {
            values[row] = source.getInt(bases[from + row] + offset, false) & mask;
        }
    }

    private void readLongs(
        final Memory source, final int[] bases, final int from, final int rows, final long[] values)
    {
        if (isBigEndian)
        {
            for (int row = 0; row < rows; row++)
            {
                values[row] = source.getLong(bases[from + row] + offset, true);
            }
            return;
        }
        for (int row = 0; row < rows; row++)
        {
            values[row] = source.getLong(bases[from + row] + offset, false);
        }
    }
}

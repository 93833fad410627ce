package io.aeronspark.sbe;

/**
 * A column of the output, or a child of one. After a walk it reserves its buffers, then it fills them. Each column has
 * a validity buffer first; its other buffers follow in Arrow's order.
 */
abstract class Column
{
    final OutputBuffer validity = new OutputBuffer();
    int length;
    int nulls;

    /** Find the length, and reserve the buffers of this column and its children. */
    abstract void reserve(Memory source, OutputLayout layout);

    /** Write the buffers of this column and its children. */
    abstract void fill(Memory source, Memory out);

    /** Add length, count of nulls, and offset and bytes of each buffer, then those of the children. */
    abstract void addPlaces(Places places);

    final void reserveValidity(final OutputLayout layout, final int newLength)
    {
        length = newLength;
        nulls = 0;
        layout.reserve(validity, validityBytes(newLength));
        validity.used = validityBytes(newLength);
    }

    final void addOwn(final Places places, final OutputBuffer... others)
    {
        places.add(length);
        places.add(nulls);
        places.add(validity);
        for (final OutputBuffer other : others)
        {
            places.add(other);
        }
    }

    private static int validityBytes(final int rows)
    {
        return (rows + 63) / 64 * 8;
    }

    /** Write the validity of a column of which each entry has the same answer to {@code since}. */
    final void fillPresence(final Level level, final int since, final Memory out)
    {
        final boolean isEverywhere = level.isEverywhere(since);
        for (int from = 0; from < length; from += 64)
        {
            final int rows = Math.min(64, length - from);
            long bits = Validity.ones(rows);
            if (!isEverywhere)
            {
                bits = 0;
                for (int row = 0; row < rows; row++)
                {
                    bits |= level.isPresent(from + row, since) ? 1L << row : 0;
                }
            }
            nulls += rows - Long.bitCount(bits);
            out.putLong(validity.offset + from / 8, bits);
        }
    }

    /** Set the bit of a row in a buffer of bits that is zero so far. */
    static void setBit(final Memory out, final int offset, final int row)
    {
        final int at = offset + (row >> 3);
        out.putByte(at, (byte)(out.getByte(at) | 1 << (row & 7)));
    }
}

package io.aeronspark.sbe;

/** The header of a data field: its bytes, behind which the data begin, and where their length is. */
record DataHeader(int headerLength, int lengthPrimitive, int lengthOffset)
{
    static DataHeader read(final TableReader table)
    {
        return new DataHeader(table.next(), table.next(), table.next());
    }

    /** Bytes of the data; negative for a number of 64 bits with its highest bit. */
    long length(final Memory source, final int at, final boolean isBigEndian)
    {
        return Primitive.read(source, at + lengthOffset, lengthPrimitive, isBigEndian);
    }
}

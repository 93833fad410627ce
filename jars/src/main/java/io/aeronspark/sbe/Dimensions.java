package io.aeronspark.sbe;

/** The header of a group: its bytes, and where its numbers are. */
record Dimensions(
    int headerLength,
    int lengthPrimitive,
    int lengthOffset,
    int countPrimitive,
    int countOffset,
    Counts counts)
{
    static Dimensions read(final TableReader table)
    {
        return new Dimensions(
            table.next(), table.next(), table.next(), table.next(), table.next(), Counts.read(table));
    }

    /** Bytes of an entry's block; negative for a number of 64 bits with its highest bit. */
    long blockLength(final Memory source, final int at, final boolean isBigEndian)
    {
        return Primitive.read(source, at + lengthOffset, lengthPrimitive, isBigEndian);
    }

    /** Count of entries; negative for a number of 64 bits with its highest bit. */
    long entries(final Memory source, final int at, final boolean isBigEndian)
    {
        return Primitive.read(source, at + countOffset, countPrimitive, isBigEndian);
    }
}

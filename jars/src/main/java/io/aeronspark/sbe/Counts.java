package io.aeronspark.sbe;

/** Where a header says how many groups and data follow: primitive and offset of both counts. A primitive may be none. */
record Counts(int groupsPrimitive, int groupsOffset, int dataPrimitive, int dataOffset)
{
    /** The count that a header does not have. */
    static final long NONE = -1;

    static Counts read(final TableReader table)
    {
        return new Counts(table.next(), table.next(), table.next(), table.next());
    }

    boolean hasAny()
    {
        return groupsPrimitive >= 0 || dataPrimitive >= 0;
    }

    boolean hasBoth()
    {
        return groupsPrimitive >= 0 && dataPrimitive >= 0;
    }

    /** Count of groups in the header at {@code at}, or {@link #NONE}. */
    long groups(final Memory source, final int at, final boolean isBigEndian)
    {
        return read(source, at + groupsOffset, groupsPrimitive, isBigEndian);
    }

    /** Count of data in the header at {@code at}, or {@link #NONE}. */
    long data(final Memory source, final int at, final boolean isBigEndian)
    {
        return read(source, at + dataOffset, dataPrimitive, isBigEndian);
    }

    private static long read(final Memory source, final int at, final int primitive, final boolean isBigEndian)
    {
        if (primitive < 0)
        {
            return NONE;
        }
        final long count = Primitive.read(source, at, primitive, isBigEndian);
        return count < 0 ? Long.MAX_VALUE : count; // a number of 64 bits with its highest bit
    }
}

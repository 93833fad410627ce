package io.aeronspark.sbe;

/** The primitive types by their numbers in a decode table, and how one value of them is read. */
final class Primitive
{
    static final int CHAR = 0;
    static final int INT8 = 1;
    static final int INT16 = 2;
    static final int INT32 = 3;
    static final int INT64 = 4;
    static final int UINT8 = 5;
    static final int UINT16 = 6;
    static final int UINT32 = 7;
    static final int UINT64 = 8;
    static final int FLOAT = 9;
    static final int DOUBLE = 10;

    private static final int[] SIZES = {1, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8};

    private Primitive()
    {
    }

    /** Bytes of one value. */
    static int size(final int primitive)
    {
        return SIZES[primitive];
    }

    /** Read a value: an integer with or without sign extension as its type says, of a float its bits. */
    static long read(final Memory source, final int index, final int primitive, final boolean isBigEndian)
    {
        return switch (primitive)
        {
            case INT8 -> source.getByte(index);
            case INT16 -> source.getShort(index, isBigEndian);
            case INT32, FLOAT -> source.getInt(index, isBigEndian);
            case INT64, UINT64, DOUBLE -> source.getLong(index, isBigEndian);
            case CHAR, UINT8 -> source.getByte(index) & 0xFF;
            case UINT16 -> source.getShort(index, isBigEndian) & 0xFFFF;
            case UINT32 -> source.getInt(index, isBigEndian) & 0xFFFF_FFFFL;
            default -> throw new IllegalArgumentException("primitive type " + primitive);
        };
    }
}

package io.aeronspark.sbe;

/** Divides the caller's memory among the buffers of all columns. */
final class OutputLayout
{
    private static final int ALIGNMENT = 64;

    private long length;

    void clear()
    {
        length = 0;
    }

    /**
     * Reserve {@code capacity} bytes.
     *
     * @throws IllegalStateException if all buffers together would be longer than an array can be.
     */
    void reserve(final OutputBuffer buffer, final long capacity)
    {
        if (capacity > Integer.MAX_VALUE - ALIGNMENT - length)
        {
            throw new IllegalStateException("the columns need more than " + length + " and " + capacity + " bytes");
        }
        buffer.offset = (int)length;
        buffer.used = 0;
        length += (capacity + ALIGNMENT - 1) & -ALIGNMENT;
    }

    long length()
    {
        return length;
    }
}

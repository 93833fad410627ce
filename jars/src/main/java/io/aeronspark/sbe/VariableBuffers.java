package io.aeronspark.sbe;

/** The buffers of texts, bytes or lists: int32 offsets, and for texts and bytes their data. */
final class VariableBuffers
{
    final OutputBuffer offsets = new OutputBuffer();
    final OutputBuffer data = new OutputBuffer();

    void reserve(final OutputLayout layout, final int rows, final long bytes)
    {
        reserveOffsets(layout, rows);
        layout.reserve(data, bytes);
    }

    void reserveOffsets(final OutputLayout layout, final int rows)
    {
        layout.reserve(offsets, 4L * (rows + 1));
        offsets.used = 4 * (rows + 1);
    }

    void begin(final Memory out)
    {
        out.putInt(offsets.offset, 0);
    }

    /** Store the end of a row, in bytes or elements from the start of the column. */
    void end(final Memory out, final int row, final int end)
    {
        out.putInt(offsets.offset + 4 * (row + 1), end);
    }
}

package io.aeronspark.sbe;

/** Single characters as texts. */
final class CharacterColumn extends ValueColumn
{
    private final VariableBuffers buffers = new VariableBuffers();
    private final TextCopier copier;
    private int at;

    CharacterColumn(final Value value, final Scratch scratch, final TextCopier copier)
    {
        super(value, scratch);
        this.copier = copier;
    }

    @Override
    void reserve(final Memory source, final OutputLayout layout)
    {
        reserveValidity(layout, value.level.count);
        buffers.reserve(layout, length, (long)TextCopier.MAX_GROWTH * length);
    }

    @Override
    void addPlaces(final Places places)
    {
        addOwn(places, buffers.offsets, buffers.data);
    }

    @Override
    void begin(final Memory out)
    {
        buffers.begin(out);
        at = buffers.data.offset;
    }

    @Override
    void write(final Memory out, final int from, final int rows, final long[] values, final Validity valid)
    {
        for (int row = 0; row < rows; row++)
        {
            if (valid.get(row))
            {
                at = copier.putByte((int)values[row], out, at);
            }
            buffers.end(out, from + row, at - buffers.data.offset);
        }
        buffers.data.used = at - buffers.data.offset;
    }
}

package io.aeronspark.sbe;

/** The names of enum values. A value without a name becomes a text of its number or character. */
final class EnumColumn extends ValueColumn
{
    private final VariableBuffers buffers = new VariableBuffers();
    private final NameTable names;
    private final TextCopier copier = new TextCopier("ISO-8859-1");
    private int at;

    EnumColumn(final Value value, final Scratch scratch, final NameTable names)
    {
        super(value, scratch);
        this.names = names;
    }

    @Override
    void reserve(final Memory source, final OutputLayout layout)
    {
        reserveValidity(layout, value.level.count);
        buffers.reserve(layout, length, (long)names.maxLength() * length + Name.SLACK);
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
                final Name name = names.find(values[row]);
                at = name != null ? name.put(out, at) : putUnknown(out, values[row]);
            }
            buffers.end(out, from + row, at - buffers.data.offset);
        }
        buffers.data.used = at - buffers.data.offset;
    }

    private int putUnknown(final Memory out, final long number)
    {
        return value.primitive == Primitive.CHAR ?
            copier.putByte((int)number, out, at) :
            NameTable.putNumber(out, at, number, value.primitive == Primitive.UINT64);
    }
}

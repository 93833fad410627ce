package io.aeronspark.sbe;

/** A constant: the bytes of a number, or a text. It has no bytes in a message. */
final class ConstantColumn extends Column
{
    private final VariableBuffers buffers;
    private final OutputBuffer data = new OutputBuffer();
    private final Level level;
    private final int since;
    private final Name bytes;

    /** @param bytes of each value. */
    ConstantColumn(final Level level, final int since, final byte[] bytes, final boolean isText)
    {
        this.level = level;
        this.since = since;
        this.bytes = new Name(bytes);
        buffers = isText ? new VariableBuffers() : null;
    }

    @Override
    void reserve(final Memory source, final OutputLayout layout)
    {
        reserveValidity(layout, level.count);
        final long all = (long)bytes.length * length;
        if (buffers != null)
        {
            buffers.reserve(layout, length, all + Name.SLACK);
            return;
        }
        layout.reserve(data, all + Name.SLACK);
        data.used = (int)all;
    }

    @Override
    void addPlaces(final Places places)
    {
        if (buffers != null)
        {
            addOwn(places, buffers.offsets, buffers.data);
        }
        else
        {
            addOwn(places, data);
        }
    }

    @Override
    void fill(final Memory source, final Memory out)
    {
        fillPresence(level, since, out);
        final int start = buffers == null ? data.offset : buffers.data.offset;
        for (int row = 0; row < length; row++)
        {
            bytes.put(out, start + row * bytes.length);
        }
        if (buffers != null)
        {
            buffers.begin(out);
            for (int row = 0; row < length; row++)
            {
                buffers.end(out, row, (row + 1) * bytes.length);
            }
            buffers.data.used = length * bytes.length;
        }
    }
}

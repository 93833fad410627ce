package io.aeronspark.sbe;

/** The name of each row's message type, or the bytes of each malformed message; null for other rows. */
final class RowBytesColumn extends Column
{
    private final VariableBuffers buffers = new VariableBuffers();
    private final MessageRows rows;
    private final boolean isName;

    RowBytesColumn(final MessageRows rows, final boolean isName)
    {
        this.rows = rows;
        this.isName = isName;
    }

    @Override
    void reserve(final Memory source, final OutputLayout layout)
    {
        long bytes = rows.corruptBytes;
        if (isName)
        {
            bytes = 0;
            for (int row = 0; row < rows.count; row++)
            {
                bytes += rows.types[row] == null ? 0 : rows.types[row].name.length;
            }
        }
        reserveValidity(layout, rows.count);
        buffers.reserve(layout, length, bytes + Name.SLACK);
    }

    @Override
    void addPlaces(final Places places)
    {
        addOwn(places, buffers.offsets, buffers.data);
    }

    @Override
    void fill(final Memory source, final Memory out)
    {
        out.clear(validity.offset, validity.used);
        buffers.begin(out);
        final int start = buffers.data.offset;
        int at = start;
        for (int row = 0; row < length; row++)
        {
            final int bytes = rows.corruptLengths[row];
            if (isName ? rows.types[row] == null : bytes < 0)
            {
                nulls++;
            }
            else
            {
                setBit(out, validity.offset, row);
                if (isName)
                {
                    at = rows.types[row].name.put(out, at);
                }
                else
                {
                    source.copyTo(rows.corruptPlaces[row], out, at, bytes);
                    at += bytes;
                }
            }
            buffers.end(out, row, at - start);
        }
        buffers.data.used = at - start;
    }
}

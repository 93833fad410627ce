package io.aeronspark.sbe;

/** Data of variable length: texts, or bytes as they are if there is no copier. */
final class DataColumn extends Column
{
    private final VariableBuffers buffers = new VariableBuffers();
    private final DataPlaces places;
    private final TextCopier copier;

    DataColumn(final DataPlaces places, final TextCopier copier)
    {
        this.places = places;
        this.copier = copier;
    }

    @Override
    void reserve(final Memory source, final OutputLayout layout)
    {
        reserveValidity(layout, places.level.count);
        buffers.reserve(layout, length, (copier == null ? 1L : TextCopier.MAX_GROWTH) * places.totalLength());
    }

    @Override
    void addPlaces(final Places found)
    {
        addOwn(found, buffers.offsets, buffers.data);
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
            final int place = places.place(row);
            if (place < 0)
            {
                nulls++;
            }
            else
            {
                setBit(out, validity.offset, row);
                at = put(source, place, places.length(row), out, at);
            }
            buffers.end(out, row, at - start);
        }
        buffers.data.used = at - start;
    }

    private int put(
        final Memory source, final int place, final int bytes, final Memory out, final int at)
    {
        if (copier == null)
        {
            source.copyTo(place, out, at, bytes);
            return at + bytes;
        }
        return copier.copy(source, place, bytes, out, at);
    }
}

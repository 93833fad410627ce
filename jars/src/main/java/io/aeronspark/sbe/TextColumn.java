package io.aeronspark.sbe;

/** Character arrays of a fixed length, up to their first NUL; or byte arrays, without a copier and as they are. */
final class TextColumn extends Column
{
    private final VariableBuffers buffers = new VariableBuffers();
    private final Level level;
    private final int offset;
    private final int since;
    private final int bytes;
    private final TextCopier copier;

    TextColumn(final Level level, final int offset, final int since, final int bytes, final TextCopier copier)
    {
        this.level = level;
        this.offset = offset;
        this.since = since;
        this.bytes = bytes;
        this.copier = copier;
    }

    @Override
    void reserve(final Memory source, final OutputLayout layout)
    {
        reserveValidity(layout, level.count);
        buffers.reserve(layout, length, (copier == null ? 1L : TextCopier.MAX_GROWTH) * bytes * length + Name.SLACK);
    }

    @Override
    void addPlaces(final Places places)
    {
        addOwn(places, buffers.offsets, buffers.data);
    }

    @Override
    void fill(final Memory source, final Memory out)
    {
        fillPresence(level, since, out);
        buffers.begin(out);
        final int start = buffers.data.offset;
        int at = start;
        final boolean isEverywhere = level.isEverywhere(since);
        for (int row = 0; row < length; row++)
        {
            if (isEverywhere || level.isPresent(row, since))
            {
                at = put(source, level.bases[row] + offset, out, at);
            }
            buffers.end(out, row, at - start);
        }
        buffers.data.used = at - start;
    }

    private int put(final Memory source, final int place, final Memory out, final int at)
    {
        if (copier == null)
        {
            source.copyTo(place, out, at, bytes);
            return at + bytes;
        }
        return copier.copyBeforeNul(source, place, bytes, out, at);
    }
}

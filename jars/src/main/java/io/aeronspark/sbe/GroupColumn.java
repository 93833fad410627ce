package io.aeronspark.sbe;

/** A group as lists of its entries: null where the message's version does not have it. */
final class GroupColumn extends Column
{
    private final VariableBuffers lists = new VariableBuffers();
    private final Level level;
    private final Column entry;

    GroupColumn(final Level level, final Column entry)
    {
        this.level = level;
        this.entry = entry;
    }

    @Override
    void reserve(final Memory source, final OutputLayout layout)
    {
        reserveValidity(layout, level.parent.count);
        lists.reserveOffsets(layout, length);
        entry.reserve(source, layout);
    }

    @Override
    void addPlaces(final Places places)
    {
        addOwn(places, lists.offsets);
        entry.addPlaces(places);
    }

    @Override
    void fill(final Memory source, final Memory out)
    {
        out.clear(validity.offset, validity.used);
        lists.begin(out);
        for (int row = 0; row < length; row++)
        {
            if (level.isGroupPresent(row))
            {
                setBit(out, validity.offset, row);
            }
            else
            {
                nulls++;
            }
            lists.end(out, row, level.groupEnd(row));
        }
        entry.fill(source, out);
    }
}

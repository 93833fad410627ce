package io.aeronspark.sbe;

/** Arrays of a fixed number of values as lists; {@code elements} becomes the level of their elements. */
final class ArrayColumn extends Column
{
    private final VariableBuffers lists = new VariableBuffers();
    private final Level level;
    private final int offset;
    private final int since;
    private final int count;
    private final int elementLength;
    private final Level elements;
    private final Column element;

    ArrayColumn(
        final Level level,
        final int offset,
        final int since,
        final int count,
        final int elementLength,
        final Level elements,
        final Column element)
    {
        this.level = level;
        this.offset = offset;
        this.since = since;
        this.count = count;
        this.elementLength = elementLength;
        this.elements = elements;
        this.element = element;
    }

    @Override
    void reserve(final Memory source, final OutputLayout layout)
    {
        reserveValidity(layout, level.count);
        elements.clear();
        elements.reserve(Math.multiplyExact(length, count));
        for (int row = 0; row < length; row++)
        {
            if (level.isPresent(row, since))
            {
                elements.addAll(level.bases[row] + offset, elementLength, count, level.versions[row]);
            }
        }
        lists.reserveOffsets(layout, length);
        element.reserve(source, layout);
    }

    @Override
    void addPlaces(final Places places)
    {
        addOwn(places, lists.offsets);
        element.addPlaces(places);
    }

    @Override
    void fill(final Memory source, final Memory out)
    {
        fillPresence(level, since, out);
        lists.begin(out);
        int end = 0;
        for (int row = 0; row < length; row++)
        {
            end += level.isPresent(row, since) ? count : 0;
            lists.end(out, row, end);
        }
        element.fill(source, out);
    }
}

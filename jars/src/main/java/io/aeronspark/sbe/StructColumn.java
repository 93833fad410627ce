package io.aeronspark.sbe;

/** A composite, an entry of a group, or a message among several: its members are columns of the same level. */
final class StructColumn extends Column
{
    private final Level level;
    private final int since;
    private final Column[] children;

    StructColumn(final Level level, final int since, final Column[] children)
    {
        this.level = level;
        this.since = since;
        this.children = children;
    }

    @Override
    void reserve(final Memory source, final OutputLayout layout)
    {
        reserveValidity(layout, level.count);
        for (final Column child : children)
        {
            child.reserve(source, layout);
        }
    }

    @Override
    void addPlaces(final Places places)
    {
        addOwn(places);
        for (final Column child : children)
        {
            child.addPlaces(places);
        }
    }

    @Override
    void fill(final Memory source, final Memory out)
    {
        fillPresence(level, since, out);
        for (final Column child : children)
        {
            child.fill(source, out);
        }
    }
}

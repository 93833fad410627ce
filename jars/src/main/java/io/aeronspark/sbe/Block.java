package io.aeronspark.sbe;

import java.util.ArrayList;
import java.util.List;

/** The fixed part of a message or of a group's entry, and the groups and data behind it. */
final class Block
{
    final Level level;
    final GroupPart[] groups;
    final DataPart[] data;
    /** Columns whose values may not fit their type; a message with such a value is malformed. */
    final List<ValueCheck> checks = new ArrayList<>();
    private final int[] versions;
    private final int[] lengths;
    private final String[] names;

    /** A repeating group. */
    record GroupPart(int since, String name, Dimensions dimensions, Block block)
    {
    }

    /** A data field. */
    record DataPart(int since, String name, DataPlaces places, DataHeader header)
    {
    }

    /** Read a block of the table, and the blocks within; sets the parents of their levels. */
    Block(final TableReader table, final Level[] levels, final DataPlaces[] allPlaces)
    {
        level = levels[table.next()];
        final int required = table.next();
        versions = new int[required];
        lengths = new int[required];
        names = new String[required];
        for (int index = 0; index < required; index++)
        {
            versions[index] = table.next();
            lengths[index] = table.next();
            names[index] = table.nextText();
        }
        groups = new GroupPart[table.next()];
        for (int index = 0; index < groups.length; index++)
        {
            groups[index] = new GroupPart(
                table.next(), table.nextText(), Dimensions.read(table), new Block(table, levels, allPlaces));
            groups[index].block.level.parent = level;
        }
        data = new DataPart[table.next()];
        for (int index = 0; index < data.length; index++)
        {
            final int since = table.next();
            final String name = table.nextText();
            final DataPlaces places = new DataPlaces(level);
            allPlaces[table.next()] = places;
            data[index] = new DataPart(since, name, places, DataHeader.read(table));
        }
    }

    /** Whether groups or data are behind the fields. */
    boolean hasParts()
    {
        return groups.length > 0 || data.length > 0;
    }

    /** Groups that a message of this version has. */
    int groupsOf(final int version)
    {
        int count = 0;
        for (final GroupPart group : groups)
        {
            count += group.since <= version ? 1 : 0;
        }
        return count;
    }

    /** Data fields that a message of this version has. */
    int dataOf(final int version)
    {
        int count = 0;
        for (final DataPart one : data)
        {
            count += one.since <= version ? 1 : 0;
        }
        return count;
    }

    /** Index of the entry of {@link #requiredLength} for a version, or -1 if it has no fields. */
    int requirement(final int version)
    {
        int index = versions.length - 1;
        while (index >= 0 && versions[index] > version)
        {
            index--;
        }
        return index;
    }

    /** Bytes that a block must have at least. */
    int requiredLength(final int requirement)
    {
        return requirement < 0 ? 0 : lengths[requirement];
    }

    /** Name of the field that ends there. */
    String requiredName(final int requirement)
    {
        return names[requirement];
    }

    /** This level and the levels within, in their order. */
    void addLevels(final List<Level> found)
    {
        found.add(level);
        for (final GroupPart group : groups)
        {
            group.block.addLevels(found);
        }
    }
}

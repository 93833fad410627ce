package io.aeronspark.sbe;

import java.util.ArrayList;
import java.util.List;

/** The fixed part of a message or of a group's entry, and the groups and data behind it. */
final class Block
{
    final Level level;
    final Part[] parts;
    /** Columns whose values may not fit their type; a message with such a value is malformed. */
    final List<ValueCheck> checks = new ArrayList<>();
    private final int[] versions;
    private final int[] lengths;
    private final String[] names;

    /** A group or data field of a block; exactly one of its members is not null. */
    record Part(GroupPart group, DataPart data)
    {
    }

    /** A repeating group. Offsets are from the start of its header. */
    record GroupPart(
        int since,
        String name,
        int headerLength,
        int lengthPrimitive,
        int lengthOffset,
        int countPrimitive,
        int countOffset,
        Block block)
    {
    }

    /** A data field. Its bytes begin {@code headerLength} bytes behind its start. */
    record DataPart(int since, String name, DataPlaces places, int lengthPrimitive, int lengthOffset, int headerLength)
    {
    }

    /** Read a block of the table, and the blocks within; sets the parents of their levels. */
    Block(final TableReader table, final Level[] levels, final DataPlaces[] data, final boolean isBigEndian)
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
        parts = new Part[table.next()];
        for (int index = 0; index < parts.length; index++)
        {
            parts[index] = table.next() == 0 ?
                new Part(readGroup(table, levels, data, isBigEndian), null) :
                new Part(null, readData(table, data));
        }
    }

    private GroupPart readGroup(
        final TableReader table, final Level[] levels, final DataPlaces[] data, final boolean isBigEndian)
    {
        final int since = table.next();
        final String name = table.nextText();
        final int headerLength = table.next();
        final int lengthPrimitive = table.next();
        final int lengthOffset = table.next();
        final int countPrimitive = table.next();
        final int countOffset = table.next();
        final Block block = new Block(table, levels, data, isBigEndian);
        block.level.parent = level;
        return new GroupPart(
            since, name, headerLength, lengthPrimitive, lengthOffset, countPrimitive, countOffset, block);
    }

    private DataPart readData(final TableReader table, final DataPlaces[] data)
    {
        final int since = table.next();
        final String name = table.nextText();
        final int number = table.next();
        data[number] = new DataPlaces(level);
        return new DataPart(since, name, data[number], table.next(), table.next(), table.next());
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
        for (final Part part : parts)
        {
            if (part.group != null)
            {
                part.group.block.addLevels(found);
            }
        }
    }
}

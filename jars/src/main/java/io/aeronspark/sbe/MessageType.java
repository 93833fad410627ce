package io.aeronspark.sbe;

import java.util.ArrayList;
import java.util.List;

/** A message type of the schema, and whether its columns are wanted. */
final class MessageType
{
    final int templateId;
    final Name name;
    final boolean isChosen;
    final Block block;
    private final Level[] levels;
    private final int[] counts;

    MessageType(final TableReader table, final Level[] levels, final DataPlaces[] data)
    {
        templateId = table.next();
        name = new Name(table.nextText());
        isChosen = table.nextFlag();
        block = new Block(table, levels, data);
        final List<Level> found = new ArrayList<>();
        block.addLevels(found);
        this.levels = found.toArray(new Level[0]);
        counts = new int[this.levels.length];
    }

    /** Store how many entries each level has. */
    void mark()
    {
        for (int index = 0; index < levels.length; index++)
        {
            counts[index] = levels[index].count;
        }
    }

    /** Remove the entries since {@link #mark}. */
    void rollBack()
    {
        for (int index = 0; index < levels.length; index++)
        {
            levels[index].count = counts[index];
        }
    }

    /** Add absent messages up to {@code rows}, with absent groups and data. */
    void pad(final int rows)
    {
        final int from = block.level.count;
        if (from < rows)
        {
            block.level.pad(rows);
            for (final Block.GroupPart group : block.groups)
            {
                group.block().level.endGroups(from, rows);
            }
            for (final Block.DataPart data : block.data)
            {
                data.places().setAbsent(from, rows);
            }
        }
    }
}

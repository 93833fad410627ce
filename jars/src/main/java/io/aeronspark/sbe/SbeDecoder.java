package io.aeronspark.sbe;

import org.agrona.collections.Int2ObjectHashMap;

/**
 * Decodes values of an Arrow column into further columns, as a decode table says. For each batch, the caller walks some
 * values, allocates {@link #outputLength} bytes, lets the decoder {@link #fill} them, and makes its arrays of the
 * {@link #places}. Not thread-safe.
 */
public final class SbeDecoder
{
    private static final int TABLE_VERSION = 2;
    /** Limits of a batch: bytes of its values, entries of groups, and rows times message types. */
    private static final int MAX_BYTES = 4 * 1024 * 1024;
    private static final int MAX_ENTRIES = 256 * 1024;
    private static final int MAX_ROWS = 1024 * 1024;

    private final Memory source = new Memory();
    private final Memory out = new Memory();
    private final Memory offsets = new Memory();
    private final Memory validity = new Memory();
    private final OutputLayout layout = new OutputLayout();
    private final Places places = new Places();
    private final Level[] levels;
    private final DataPlaces[] data;
    private final Column[] columns;
    private final MessageReader reader;
    private final Framing framing;
    private final int maxRows;

    /**
     * @param numbers of the decode table.
     * @param texts   of the decode table.
     */
    public SbeDecoder(final long[] numbers, final String[] texts)
    {
        final TableReader table = new TableReader(numbers, texts);
        if (table.next() != TABLE_VERSION)
        {
            throw new IllegalArgumentException("the decode table has version " + numbers[0]);
        }
        final boolean isBigEndian = table.nextFlag();
        final int framingKind = table.next();
        final int mode = table.next();
        final int others = table.next();
        final int schemaId = table.next();
        final int schemaVersion = table.next();
        final MessageHeader header = new MessageHeader(table, isBigEndian);
        final Fault fault = new Fault();
        final UnknownParts unknown = new UnknownParts(table, source, isBigEndian, fault);
        levels = new Level[table.next()];
        for (int index = 0; index < levels.length; index++)
        {
            levels[index] = new Level();
        }
        data = new DataPlaces[table.next()];
        final MessageType[] types = new MessageType[table.next()];
        final Int2ObjectHashMap<Block> blocks = new Int2ObjectHashMap<>();
        int chosen = 0;
        for (int index = 0; index < types.length; index++)
        {
            types[index] = new MessageType(table, levels, data);
            addBlocks(types[index].block, blocks);
            chosen += types[index].isChosen ? 1 : 0;
        }
        maxRows = Math.max(1024, MAX_ROWS / Math.max(1, chosen));
        final MessageWalk walk = new MessageWalk(source, isBigEndian, schemaVersion, unknown, fault);
        reader = new MessageReader(source, mode, others, schemaId, header, walk, types, fault);
        framing = new Framing(framingKind, source, reader);
        columns = new ColumnFactory(table, levels, data, blocks, reader.rows, isBigEndian).columns(null);
    }

    private void addBlocks(final Block block, final Int2ObjectHashMap<Block> found)
    {
        for (int number = 0; number < levels.length; number++)
        {
            if (levels[number] == block.level)
            {
                found.put(number, block);
            }
        }
        for (final Block.GroupPart group : block.groups)
        {
            addBlocks(group.block(), found);
        }
    }

    /**
     * Walk values from {@code first}, as many as fit into a batch, and at least one.
     *
     * @param valuesAddress   of the bytes of all values.
     * @param valuesLength    of these bytes.
     * @param offsetsAddress  of {@code count + 1} int32 offsets into these bytes.
     * @param validityAddress of the validity bits of the values, or 0 if none is null; a null value makes a null row.
     * @param validityOffset  index of the first value's bit.
     * @return count of values walked; less than the rest of them also after a failure: see {@link #hasFailed}.
     */
    public int walk(
        final long valuesAddress,
        final int valuesLength,
        final long offsetsAddress,
        final long validityAddress,
        final int validityOffset,
        final int first,
        final int count)
    {
        source.wrap(valuesAddress, valuesLength);
        offsets.wrap(offsetsAddress, 4 * (count + 1));
        if (validityAddress != 0)
        {
            validity.wrap(validityAddress, (validityOffset + count + 7) / 8);
        }
        clear();
        int value = first;
        final int firstByte = offsets.getInt(4 * first);
        while (value < count && !isFull(offsets.getInt(4 * value) - firstByte))
        {
            if (validityAddress != 0 && isNull(validityOffset + value))
            {
                reader.rows.add(value, 0, null, MessageRows.UNKNOWN, MessageRows.UNKNOWN);
            }
            else
            {
                framing.read(value, offsets.getInt(4 * value), offsets.getInt(4 * value + 4));
                if (reader.isFailed)
                {
                    break;
                }
            }
            value++;
        }
        reader.finish();
        return value - first;
    }

    private boolean isFull(final int bytes)
    {
        return bytes > 0 && (bytes >= MAX_BYTES || reader.entries >= MAX_ENTRIES || reader.rows.count >= maxRows);
    }

    private boolean isNull(final int bit)
    {
        return (validity.getByte(bit >> 3) & 1 << (bit & 7)) == 0;
    }

    private void clear()
    {
        reader.clear();
        for (final Level level : levels)
        {
            level.clear();
        }
        for (final DataPlaces one : data)
        {
            one.clear();
        }
    }

    /** Rows of the batch. */
    public int rows()
    {
        return reader.rows.count;
    }

    /** Messages of the batch that are not wanted, and malformed messages that were dropped. */
    public long[] counts()
    {
        return new long[] {reader.otherCount, reader.droppedCount};
    }

    /** Whether the walk ended at a message that is malformed, or not wanted, and has to fail. */
    public boolean hasFailed()
    {
        return reader.isFailed;
    }

    /** Whether the message that failed is of another type, not malformed. */
    public boolean hasFailedForType()
    {
        return reader.isOther;
    }

    /** Index of the value that failed, of the message in it, and of the byte in it. */
    public int[] failedPlace()
    {
        final int byteIndex = reader.fault.index() - offsets.getInt(4 * reader.failedSource);
        return new int[] {reader.failedSource, reader.failedIndex, byteIndex};
    }

    /** Why the message failed. */
    public String failure()
    {
        return reader.fault.text();
    }

    /**
     * Bytes of memory that the columns of the batch need.
     *
     * @throws IllegalStateException if that is more than an array can have.
     */
    public long outputLength()
    {
        layout.clear();
        for (final Column column : columns)
        {
            column.reserve(source, layout);
        }
        return layout.length();
    }

    /** Write the columns into {@link #outputLength} bytes at {@code address}. */
    public void fill(final long address)
    {
        out.wrap(address, (int)layout.length());
        places.clear();
        for (final Column column : columns)
        {
            column.fill(source, out);
            column.addPlaces(places);
        }
    }

    /**
     * For each column and its children, in order: length, count of nulls, and for each buffer its offset and bytes. The
     * last column has the index of each row's value.
     */
    public long[] places()
    {
        return places.toArray();
    }
}

package io.aeronspark.sbe;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import org.agrona.collections.Int2ObjectHashMap;

/** Makes columns from a decode table; the numbers are those of {@code Op} in {@code aeron_spark/sbe/columns.py}. */
final class ColumnFactory
{
    private final TableReader table;
    private final Level[] levels;
    private final DataPlaces[] data;
    private final Int2ObjectHashMap<Block> blocks;
    private final MessageRows rows;
    private final boolean isBigEndian;
    private final ValueColumn.Scratch scratch = new ValueColumn.Scratch();

    ColumnFactory(
        final TableReader table,
        final Level[] levels,
        final DataPlaces[] data,
        final Int2ObjectHashMap<Block> blocks,
        final MessageRows rows,
        final boolean isBigEndian)
    {
        this.table = table;
        this.levels = levels;
        this.data = data;
        this.blocks = blocks;
        this.rows = rows;
        this.isBigEndian = isBigEndian;
    }

    /** Read columns; {@code elements} is the level of values that are elements of an array. */
    Column[] columns(final Level elements)
    {
        final Column[] found = new Column[table.next()];
        for (int index = 0; index < found.length; index++)
        {
            found[index] = column(elements);
        }
        return found;
    }

    private Column column(final Level elements)
    {
        final int op = table.next();
        final int numbers = table.next();
        return switch (op)
        {
            case 0 -> struct();
            case 1 -> group();
            case 2 -> array();
            case 9, 10 -> text();
            case 14, 15 -> constant(op == 14);
            case 16, 17 -> data();
            case 18, 22 -> rowBytes(op == 18);
            case 19, 20, 21, 23, 24 -> row(op);
            default -> ofValue(op, numbers, elements);
        };
    }

    private Column struct()
    {
        final Level level = levels[table.next()];
        final int since = table.next();
        table.nextTexts();
        return new StructColumn(level, since, columns(null));
    }

    private Column group()
    {
        final Level level = levels[table.next()];
        table.nextTexts();
        return new GroupColumn(level, columns(null)[0]);
    }

    private Column array()
    {
        final Level level = levels[table.next()];
        final int offset = table.next();
        final int since = table.next();
        final int count = table.next();
        final int elementLength = table.next();
        table.nextTexts();
        final Level elements = new Level();
        return new ArrayColumn(level, offset, since, count, elementLength, elements, columns(elements)[0]);
    }

    private Column text()
    {
        final Level level = levels[table.next()];
        final int offset = table.next();
        final int since = table.next();
        final int bytes = table.next();
        return new TextColumn(level, offset, since, bytes, copier(leafTexts()));
    }

    private Column data()
    {
        table.next(); // the level, which the data have themselves
        final DataPlaces places = data[table.next()];
        return new DataColumn(places, copier(leafTexts()));
    }

    private static TextCopier copier(final String[] texts)
    {
        return texts.length == 0 ? null : new TextCopier(texts[0]);
    }

    private Column constant(final boolean isText)
    {
        final Level level = levels[table.next()];
        final int since = table.next();
        if (isText)
        {
            return new ConstantColumn(level, since, leafTexts()[0].getBytes(StandardCharsets.UTF_8), true);
        }
        final int width = table.next();
        final long number = table.nextLong();
        final boolean isUnsigned = table.nextFlag();
        leafTexts();
        final ByteBuffer bytes = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN);
        bytes.putLong(number).putLong(isUnsigned ? 0 : number >> 63);
        final byte[] value = new byte[width];
        bytes.get(0, value);
        return new ConstantColumn(level, since, value, false);
    }

    private Column rowBytes(final boolean isName)
    {
        leafTexts();
        rows.hasDetails = true;
        return new RowBytesColumn(rows, isName);
    }

    private Column row(final int op)
    {
        final int field = op == 23 ? table.next() : 0;
        leafTexts();
        rows.hasDetails |= op != 24;
        return switch (op)
        {
            case 19 -> new RowColumn(rows, 4, true, (all, row) -> all.templateIds[row]);
            case 20 -> new RowColumn(rows, 4, true, (all, row) -> all.versions[row]);
            case 21 -> new RowColumn(rows, 4, false, (all, row) -> all.indexes[row]);
            case 23 -> new RowColumn(
                rows, 8, false, (all, row) -> all.clusterFields[row * MessageRows.CLUSTER_FIELDS + field]);
            default -> new RowColumn(rows, 4, false, (all, row) -> all.sources[row]);
        };
    }

    private Column ofValue(final int op, final int numbers, final Level elements)
    {
        final Value value = new Value(table, levels, elements, isBigEndian);
        return switch (op)
        {
            case 3 -> leaf(new NumberColumn(value, scratch, table.next()));
            case 4 -> leaf(new NumberColumn(value, scratch, Primitive.size(value.primitive)));
            case 5 ->
            {
                final int digits = table.next();
                leafTexts();
                yield digits == 0 ? new NumberColumn(value, scratch, 16) : new DecimalColumn(value, scratch, digits);
            }
            case 6 -> scaled(value, elements);
            case 7 -> timestamp(value);
            case 8 -> new CharacterColumn(value, scratch, copier(leafTexts()));
            case 11 ->
            {
                final long[] known = table.nextLongs(numbers - VALUE_NUMBERS);
                yield new EnumColumn(value, scratch, new NameTable(known, leafTexts()));
            }
            case 12 ->
            {
                final long[] bits = table.nextLongs(numbers - VALUE_NUMBERS);
                yield new SetColumn(value, bits, leafTexts());
            }
            case 13 -> leaf(new FlagColumn(value, scratch, table.next()));
            default -> throw new IllegalArgumentException("operation " + op);
        };
    }

    private static final int VALUE_NUMBERS = 6;

    private Column leaf(final Column column)
    {
        leafTexts();
        return column;
    }

    private Column timestamp(final Value value)
    {
        final int unit = table.next();
        final String[] texts = leafTexts();
        final TimestampColumn column = new TimestampColumn(value, scratch, unit, texts.length > 0 ? texts[0] : "");
        if (column.needsCheck())
        {
            blockOf(value).checks.add(column);
        }
        return column;
    }

    private Column scaled(final Value mantissa, final Level elements)
    {
        final Value exponent = new Value(table, levels, elements, isBigEndian);
        final boolean isConstant = table.nextFlag();
        final int constant = table.next();
        final int precision = table.next();
        final int scale = table.next();
        final ScaledColumn column = new ScaledColumn(
            mantissa, exponent, isConstant, constant, precision, scale, leafTexts()[0]);
        if (column.needsCheck())
        {
            blockOf(mantissa).checks.add(column);
        }
        return column;
    }

    private Block blockOf(final Value value)
    {
        for (int number = 0; number < levels.length; number++)
        {
            if (levels[number] == value.level)
            {
                return blocks.get(number);
            }
        }
        throw new IllegalArgumentException("a value without a block");
    }

    /** Read the texts of a column without children, and that it has none. */
    private String[] leafTexts()
    {
        final String[] texts = table.nextTexts();
        table.next();
        return texts;
    }
}

package io.aeronspark.sbe;

/** The names of a set's choices as a list: in the schema's order, then the numbers of bits that have no name. */
final class SetColumn extends Column
{
    private static final int MAX_NUMBER_LENGTH = 2;

    private final VariableBuffers lists = new VariableBuffers();
    private final OutputBuffer elementValidity = new OutputBuffer();
    private final VariableBuffers texts = new VariableBuffers();
    private final Value value;
    private final long[] bits;
    private final Name[] names;
    private long known;
    private int elements;

    SetColumn(final Value value, final long[] bits, final String[] names)
    {
        this.value = value;
        this.bits = bits;
        this.names = new Name[names.length];
        for (int index = 0; index < names.length; index++)
        {
            this.names[index] = new Name(names[index]);
            known |= 1L << bits[index];
        }
    }

    @Override
    void reserve(final Memory source, final OutputLayout layout)
    {
        final Level level = value.level;
        reserveValidity(layout, level.count);
        long count = 0;
        long bytes = 0;
        for (int row = 0; row < length; row++)
        {
            if (level.isPresent(row, value.since))
            {
                final long set = value.readOne(source, level.bases[row]);
                final int unknown = Long.bitCount(set & ~known);
                count += unknown;
                bytes += (long)MAX_NUMBER_LENGTH * unknown;
                for (int index = 0; index < names.length; index++)
                {
                    if ((set & 1L << bits[index]) != 0)
                    {
                        count++;
                        bytes += names[index].length;
                    }
                }
            }
        }
        elements = Math.toIntExact(count);
        lists.reserveOffsets(layout, length);
        layout.reserve(elementValidity, 0);
        texts.reserve(layout, elements, bytes + Name.SLACK);
    }

    @Override
    void addPlaces(final Places places)
    {
        addOwn(places, lists.offsets);
        places.add(elements);
        places.add(0);
        places.add(elementValidity);
        places.add(texts.offsets);
        places.add(texts.data);
    }

    @Override
    void fill(final Memory source, final Memory out)
    {
        final Level level = value.level;
        fillPresence(level, value.since, out);
        lists.begin(out);
        texts.begin(out);
        final int start = texts.data.offset;
        int at = start;
        int element = 0;
        for (int row = 0; row < length; row++)
        {
            if (level.isPresent(row, value.since))
            {
                final long set = value.readOne(source, level.bases[row]);
                for (int index = 0; index < names.length; index++)
                {
                    if ((set & 1L << bits[index]) != 0)
                    {
                        at = names[index].put(out, at);
                        texts.end(out, element++, at - start);
                    }
                }
                for (long rest = set & ~known; rest != 0; rest &= rest - 1)
                {
                    at = NameTable.putNumber(out, at, Long.numberOfTrailingZeros(rest), false);
                    texts.end(out, element++, at - start);
                }
            }
            lists.end(out, row, element);
        }
        texts.data.used = at - start;
    }
}

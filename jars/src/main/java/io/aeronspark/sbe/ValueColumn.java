package io.aeronspark.sbe;

/** A column that makes something of one primitive value; it reads and writes some rows at a time. */
abstract class ValueColumn extends Column
{
    final Value value;
    private final Scratch scratch;

    /** Memory for the values of some rows, which all columns of a decoder share. */
    static final class Scratch
    {
        final long[] values = new long[Value.CHUNK];
        final Validity valid = new Validity();
    }

    ValueColumn(final Value value, final Scratch scratch)
    {
        this.value = value;
        this.scratch = scratch;
    }

    @Override
    final void fill(final Memory source, final Memory out)
    {
        begin(out);
        for (int from = 0; from < length; from += Value.CHUNK)
        {
            final int rows = Math.min(Value.CHUNK, length - from);
            value.read(source, from, rows, scratch.values, scratch.valid);
            write(out, from, rows, scratch.values, scratch.valid);
            nulls += scratch.valid.nulls(rows);
            for (int word = 0; word < (rows + 63) / 64; word++)
            {
                out.putLong(validity.offset + from / 8 + 8 * word, scratch.valid.words[word]);
            }
        }
    }

    /** Prepare the buffers before the first rows. */
    void begin(final Memory out)
    {
        // most columns have nothing to prepare
    }

    /** Write the values of {@code rows} rows from {@code from}; it may make further ones null. */
    abstract void write(Memory out, int from, int rows, long[] values, Validity valid);
}

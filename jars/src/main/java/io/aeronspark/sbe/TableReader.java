package io.aeronspark.sbe;

/** Reads a decode table in order. {@code aeron_spark/sbe/table.py} defines its layout. */
final class TableReader
{
    private final long[] numbers;
    private final String[] texts;
    private int at;

    TableReader(final long[] numbers, final String[] texts)
    {
        this.numbers = numbers;
        this.texts = texts;
    }

    int next()
    {
        return (int)numbers[at++];
    }

    long nextLong()
    {
        return numbers[at++];
    }

    boolean nextFlag()
    {
        return numbers[at++] != 0;
    }

    String nextText()
    {
        return texts[next()];
    }

    long[] nextLongs(final int count)
    {
        final long[] found = new long[count];
        for (int index = 0; index < count; index++)
        {
            found[index] = nextLong();
        }
        return found;
    }

    String[] nextTexts()
    {
        final String[] found = new String[next()];
        for (int index = 0; index < found.length; index++)
        {
            found[index] = nextText();
        }
        return found;
    }
}

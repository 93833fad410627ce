package io.aeronspark.sbe;

import java.nio.charset.StandardCharsets;
import org.agrona.collections.Long2ObjectHashMap;

/** The names of numbers. Small numbers are looked up in an array. */
final class NameTable
{
    private static final int SMALL = 256;
    private static final int MAX_NUMBER_LENGTH = 20;

    private final Name[] small = new Name[SMALL];
    private final Long2ObjectHashMap<Name> large = new Long2ObjectHashMap<>();
    private int maxLength = MAX_NUMBER_LENGTH;

    NameTable(final long[] numbers, final String[] names)
    {
        for (int index = 0; index < numbers.length; index++)
        {
            final Name name = new Name(names[index]);
            maxLength = Math.max(maxLength, name.length);
            if (numbers[index] >= 0 && numbers[index] < SMALL)
            {
                small[(int)numbers[index]] = name;
            }
            else
            {
                large.put(numbers[index], name);
            }
        }
    }

    /** Bytes of the longest name, or of the longest number if no name is longer. */
    int maxLength()
    {
        return maxLength;
    }

    /** The name of a number, or null. */
    Name find(final long number)
    {
        return number >= 0 && number < SMALL ? small[(int)number] : large.get(number);
    }

    /** Write a number as a text. Returns the index behind it. */
    static int putNumber(final Memory out, final int at, final long number, final boolean isUnsigned)
    {
        final String text = isUnsigned ? Long.toUnsignedString(number) : Long.toString(number);
        final byte[] bytes = text.getBytes(StandardCharsets.US_ASCII);
        out.putBytes(at, bytes);
        return at + bytes.length;
    }
}

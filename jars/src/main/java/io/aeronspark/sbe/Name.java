package io.aeronspark.sbe;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/** A text that is written often: eight bytes at a time, so that up to seven bytes behind it are overwritten. */
final class Name
{
    /** Bytes that must be there behind the last text of a column. */
    static final int SLACK = 8;

    final int length;
    private final long[] words;

    Name(final String text)
    {
        this(text.getBytes(StandardCharsets.UTF_8));
    }

    Name(final byte[] bytes)
    {
        length = bytes.length;
        words = new long[(length + 7) / 8];
        final ByteBuffer padded = ByteBuffer.allocate(8 * words.length).order(ByteOrder.LITTLE_ENDIAN).put(0, bytes);
        for (int word = 0; word < words.length; word++)
        {
            words[word] = padded.getLong(8 * word);
        }
    }

    /** Write the text to {@code at}. Returns the index behind it. */
    int put(final Memory out, final int at)
    {
        for (int word = 0; word < words.length; word++)
        {
            out.putLittleEndian(at + 8 * word, words[word]);
        }
        return at + length;
    }
}

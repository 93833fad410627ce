package io.aeronspark.sbe;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.aeronspark.reading.ArrowColumns;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.Test;

class TextCopierTest
{
    private static String copy(final String charset, final String hex)
    {
        final byte[] bytes = HexFormat.of().parseHex(hex);
        final UnsafeBuffer out = ArrowColumns.direct(TextCopier.MAX_GROWTH * bytes.length);
        final int end = new TextCopier(charset).copy(memoryOf(direct(bytes)), 0, bytes.length, memoryOf(out), 0);
        return text(out, end);
    }

    private static UnsafeBuffer direct(final byte[] bytes)
    {
        final UnsafeBuffer buffer = ArrowColumns.direct(bytes.length);
        buffer.putBytes(0, bytes);
        return buffer;
    }

    private static Memory memoryOf(final UnsafeBuffer buffer)
    {
        final Memory memory = new Memory();
        memory.wrap(buffer.addressOffset(), buffer.capacity());
        return memory;
    }

    private static String text(final UnsafeBuffer out, final int end)
    {
        final byte[] text = new byte[end];
        out.getBytes(0, text);
        return new String(text, StandardCharsets.UTF_8);
    }

    @Test
    void copiesAsciiOfAnyLength()
    {
        for (int length = 0; length < 20; length++)
        {
            final String text = "abcdefghijklmnopqrst".substring(0, length);
            final String hex = HexFormat.of().formatHex(text.getBytes(StandardCharsets.US_ASCII));
            assertEquals(text, copy("US-ASCII", hex));
            assertEquals(text, copy("UTF-8", hex));
        }
    }

    @Test
    void copiesTheCharactersOfAnEncoding()
    {
        assertEquals("é1", copy("ISO-8859-1", "e931"));
        assertEquals("é中😀", copy("UTF-8", "c3a9e4b8adf09f9880"));
        assertEquals("中a", copy("GB18030", "d6d061"));
    }

    @Test
    void replacesEachByteThatIsNoCharacter()
    {
        assertEquals("A\uFFFDB", copy("US-ASCII", "41e942"));
        assertEquals("\uFFFD(", copy("UTF-8", "c328"));
        assertEquals("\uFFFD\uFFFDA", copy("UTF-8", "e28241"));
        assertEquals("\uFFFD\uFFFD", copy("UTF-8", "c080"));
        assertEquals("\uFFFD\uFFFD\uFFFD", copy("UTF-8", "eda080"));
        assertEquals("\uFFFD\uFFFD\uFFFD\uFFFD", copy("UTF-8", "f4908080"));
        assertEquals("A\uFFFD", copy("UTF-8", "41c3"));
    }

    @Test
    void endsATextAtItsFirstNul()
    {
        final byte[] letters = "abcdefghijklmnopqrstuvwxyz".getBytes(StandardCharsets.US_ASCII);
        for (int length = 0; length < 20; length++)
        {
            for (int nul = 0; nul <= length; nul++)
            {
                final byte[] bytes = letters.clone();
                bytes[3 + nul] = 0;
                bytes[3 + length] = (byte)0xFF; // is not part of the text
                final UnsafeBuffer out = ArrowColumns.direct(TextCopier.MAX_GROWTH * 20);
                final UnsafeBuffer source = direct(bytes);
                final int end = new TextCopier("UTF-8").copyBeforeNul(memoryOf(source), 3, length, memoryOf(out), 0);
                assertEquals("defghijklmnopqrstuvw".substring(0, Math.min(nul, length)), text(out, end));
            }
        }
    }

    @Test
    void replacesNoByteBehindTheFirstNul()
    {
        for (final String hex : new String[] {"6100ff0000000000", "6100ff", "00ff000000000000ff", "ff00ff0000000000"})
        {
            final byte[] bytes = HexFormat.of().parseHex(hex);
            final UnsafeBuffer out = ArrowColumns.direct(TextCopier.MAX_GROWTH * bytes.length);
            final int end = new TextCopier("US-ASCII").copyBeforeNul(
                memoryOf(direct(bytes)), 0, bytes.length, memoryOf(out), 0);
            assertEquals(hex.startsWith("61") ? "a" : hex.startsWith("ff") ? "\uFFFD" : "", text(out, end));
        }
    }
}

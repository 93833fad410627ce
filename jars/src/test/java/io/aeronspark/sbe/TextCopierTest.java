package io.aeronspark.sbe;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeronspark.reading.ArrowColumns;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.Test;

class TextCopierTest
{
    private static String copy(final String charset, final String hex)
    {
        final UnsafeBuffer source = new UnsafeBuffer(HexFormat.of().parseHex(hex));
        final UnsafeBuffer out = ArrowColumns.direct(TextCopier.MAX_GROWTH * source.capacity());
        final int end = new TextCopier(charset).copy(source, 0, source.capacity(), out, 0);
        assertTrue(end <= TextCopier.MAX_GROWTH * source.capacity());
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
    void findsTheFirstNulAtAnyPlace()
    {
        for (int length = 0; length < 20; length++)
        {
            final UnsafeBuffer source = new UnsafeBuffer("ab80ffab80ffab80ff80".repeat(2).getBytes(StandardCharsets.US_ASCII));
            assertEquals(length, TextCopier.lengthBeforeNul(source, 3, length));
            for (int nul = 0; nul < length; nul++)
            {
                final UnsafeBuffer cut = new UnsafeBuffer(source.byteArray().clone());
                cut.putByte(3 + nul, (byte)0);
                cut.putByte(3 + length - 1, (byte)0);
                assertEquals(nul, TextCopier.lengthBeforeNul(cut, 3, length));
            }
        }
    }
}

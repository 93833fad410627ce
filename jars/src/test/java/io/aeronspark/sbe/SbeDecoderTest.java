package io.aeronspark.sbe;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeronspark.reading.ArrowColumns;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.Test;

/**
 * The decoder with a table written by hand: schema 7 has the message 1 with an int32, a group {@code g} of uint8 with
 * 16-bit dimensions, and data {@code d} with an 8-bit length. Its only column is the int32.
 */
class SbeDecoderTest
{
    private static final String[] TEXTS = {"M", "i", "g", "x", "d"};

    private static long[] table(final int framing, final int mode, final int others)
    {
        return new long[] {
            2, 0, framing, mode, others, 7, 0,
            8, 6, 0, 0, 0, 6, 2, 0, 0, 6, 4, 0, 0, 6, 6, 0, 0, -1, 0, -1, 0,
            0, 0,
            2, 1, 1,
            1, 0, 1,
            0, 1, 0, 4, 1, 1,
            0, 2, 4, 6, 0, 6, 2, -1, 0, -1, 0, 1, 1, 0, 1, 3, 0, 0,
            1, 0, 4, 0, 1, 5, 0,
            2,
            3, 7, 0, 0, 0, Primitive.INT32, 0, 0, 4, 0, 0,
            24, 0, 0, 0};
    }

    private static final String ORDER = "0400010007000000" + "2a000000" + "01000200" + "0506" + "0161";

    private final List<byte[]> values = new ArrayList<>();
    private UnsafeBuffer memory;
    private UnsafeBuffer offsets;

    private void add(final String hex)
    {
        values.add(HexFormat.of().parseHex(hex));
    }

    private int walk(final SbeDecoder decoder)
    {
        final int length = values.stream().mapToInt(value -> value.length).sum();
        memory = ArrowColumns.direct(length);
        offsets = ArrowColumns.direct(4 * (values.size() + 1));
        int end = 0;
        for (int value = 0; value < values.size(); value++)
        {
            memory.putBytes(end, values.get(value));
            end += values.get(value).length;
            offsets.putInt(4 * (value + 1), end);
        }
        return decoder.walk(memory.addressOffset(), length, offsets.addressOffset(), 0, 0, 0, values.size());
    }

    private static long[] fill(final SbeDecoder decoder)
    {
        final UnsafeBuffer out = ArrowColumns.direct((int)decoder.outputLength());
        decoder.fill(out.addressOffset());
        final long[] places = decoder.places();
        final long[] column = new long[(int)places[0]];
        for (int row = 0; row < column.length; row++)
        {
            final boolean isValid = (out.getByte((int)places[2] + row / 8) & 1 << row % 8) != 0;
            column[row] = isValid ? out.getInt((int)places[4] + 4 * row) : Long.MIN_VALUE;
        }
        return column;
    }

    @Test
    void decodesMessagesIntoTheCallersMemory()
    {
        add(ORDER);
        add(ORDER.replace("2a000000", "feffffff"));
        final SbeDecoder decoder = new SbeDecoder(table(Framing.ONE, 0, 0), TEXTS);
        assertEquals(2, walk(decoder));
        assertEquals(2, decoder.rows());
        assertArrayEquals(new long[] {42, -2}, fill(decoder));
    }

    @Test
    void stopsAtTheFirstMalformedMessageAndSaysWhere()
    {
        add(ORDER);
        add(ORDER.substring(0, ORDER.length() - 2));
        final SbeDecoder decoder = new SbeDecoder(table(Framing.ONE, 0, 0), TEXTS);
        assertEquals(1, walk(decoder));
        assertTrue(decoder.hasFailed());
        assertFalse(decoder.hasFailedForType());
        assertArrayEquals(new int[] {1, 0, 18}, decoder.failedPlace());
        assertEquals("'d' has 1 bytes, but only 0 are left", decoder.failure());
    }

    @Test
    void refusesEntriesThatCannotBeThere()
    {
        for (final String dimensions : new String[] {"0100ffff", "0000ffff", "ffffffff", "00000100"})
        {
            values.clear();
            add(ORDER.replace("01000200", dimensions));
            final SbeDecoder decoder = new SbeDecoder(table(Framing.ONE, 0, 0), TEXTS);
            assertEquals(0, walk(decoder));
            assertTrue(decoder.hasFailed(), dimensions);
        }
    }

    @Test
    void leavesMalformedMessagesOutOrMakesNullRows()
    {
        add(ORDER);
        add("00");
        add(ORDER);
        final SbeDecoder dropping = new SbeDecoder(table(Framing.ONE, 2, 0), TEXTS);
        assertEquals(3, walk(dropping));
        assertArrayEquals(new long[] {42, 42}, fill(dropping));
        assertArrayEquals(new long[] {0, 1}, dropping.counts());
        final SbeDecoder permissive = new SbeDecoder(table(Framing.ONE, 1, 0), TEXTS);
        walk(permissive);
        assertArrayEquals(new long[] {42, Long.MIN_VALUE, 42}, fill(permissive));
    }

    @Test
    void skipsKeepsOrRefusesOtherMessages()
    {
        add(ORDER.replaceFirst("04000100", "04000900"));
        add(ORDER);
        final SbeDecoder skipping = new SbeDecoder(table(Framing.ONE, 0, 0), TEXTS);
        walk(skipping);
        assertArrayEquals(new long[] {42}, fill(skipping));
        assertArrayEquals(new long[] {1, 0}, skipping.counts());
        final SbeDecoder keeping = new SbeDecoder(table(Framing.ONE, 0, 1), TEXTS);
        walk(keeping);
        assertArrayEquals(new long[] {Long.MIN_VALUE, 42}, fill(keeping));
        final SbeDecoder refusing = new SbeDecoder(table(Framing.ONE, 0, 2), TEXTS);
        walk(refusing);
        assertTrue(refusing.hasFailedForType());
    }

    @Test
    void findsMessagesThatFollowEachOther()
    {
        add(ORDER + ORDER.replace("2a000000", "2b000000") + ORDER);
        final SbeDecoder decoder = new SbeDecoder(table(Framing.SEQUENCE, 0, 0), TEXTS);
        assertEquals(1, walk(decoder));
        assertArrayEquals(new long[] {42, 43, 42}, fill(decoder));
    }

    @Test
    void endsABatchBeforeItHasTooManyEntries()
    {
        final String entries = "00".repeat(60_000);
        for (int value = 0; value < 8; value++)
        {
            add("0400010007000000" + "2a000000" + "010060ea" + entries + "00");
        }
        final SbeDecoder decoder = new SbeDecoder(table(Framing.ONE, 0, 0), TEXTS);
        assertEquals(5, walk(decoder));
        assertEquals(5, decoder.rows());
    }

    @Test
    void refusesATableOfAnotherVersion()
    {
        final long[] table = table(Framing.ONE, 0, 0);
        table[0] = 1;
        assertThrows(IllegalArgumentException.class, () -> new SbeDecoder(table, TEXTS));
    }
}

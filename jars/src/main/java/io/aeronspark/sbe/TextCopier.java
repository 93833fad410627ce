package io.aeronspark.sbe;

import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;

/**
 * Copies texts as UTF-8 that is always valid: bytes that are no character in the text's encoding become U+FFFD. One
 * byte becomes at most {@link #MAX_GROWTH} bytes.
 */
final class TextCopier
{
    static final int MAX_GROWTH = 3;

    private static final long HIGH_BITS = 0x8080_8080_8080_8080L;
    private static final long LOW_BITS = 0x0101_0101_0101_0101L;

    /** For each count of bytes, a word that has all bits of so many first bytes. */
    private static final long[] ONES = new long[9];

    static
    {
        for (int bytes = 1; bytes <= 8; bytes++)
        {
            ONES[bytes] = -1L >>> 64 - 8 * bytes;
        }
    }

    private enum Kind
    {
        ASCII, UTF_8, LATIN_1, OTHER
    }

    private final Kind kind;
    private final Charset charset;

    TextCopier(final String name)
    {
        kind = switch (name)
        {
            case "US-ASCII" -> Kind.ASCII;
            case "UTF-8" -> Kind.UTF_8;
            case "ISO-8859-1" -> Kind.LATIN_1;
            default -> Kind.OTHER;
        };
        charset = kind == Kind.OTHER ? Charset.forName(name) : StandardCharsets.UTF_8;
    }

    /**
     * Copy a text of at most {@code length} bytes up to its first NUL. Up to {@link Name#SLACK} bytes behind the copy
     * are overwritten.
     *
     * @return the index behind the copy.
     */
    int copyBeforeNul(final Memory source, final int start, final int length, final Memory out, final int to)
    {
        int at = 0;
        for (; at + 8 <= length; at += 8)
        {
            final long word = source.getLong(start + at, false);
            final long nuls = word - LOW_BITS & ~word & HIGH_BITS;
            final int before = nuls == 0 ? 8 : Long.numberOfTrailingZeros(nuls) >> 3;
            if ((word & HIGH_BITS & ONES[before]) != 0)
            {
                return copyOthers(source, start + at, lengthBeforeNul(source, start + at, length - at), out, to + at);
            }
            out.putLittleEndian(to + at, word); // what is behind the NUL is overwritten by the next text
            if (before < 8)
            {
                return to + at + before;
            }
        }
        if (at + 4 <= length)
        {
            final int word = source.getInt(start + at, false);
            if ((word & (int)HIGH_BITS) == 0 && (word - (int)LOW_BITS & ~word & (int)HIGH_BITS) == 0)
            {
                out.putLittleEndian(to + at, word);
                at += 4;
            }
        }
        return copy(source, start + at, lengthBeforeNul(source, start + at, length - at), out, to + at);
    }

    private static int lengthBeforeNul(final Memory source, final int start, final int length)
    {
        int at = 0;
        while (at < length && source.getByte(start + at) != 0)
        {
            at++;
        }
        return at;
    }

    /** Copy a text to {@code to}. Returns the index behind the copy. */
    int copy(final Memory source, final int start, final int length, final Memory out, final int to)
    {
        int at = 0;
        for (; at + 8 <= length; at += 8)
        {
            final long word = source.getLong(start + at, false);
            if ((word & HIGH_BITS) != 0)
            {
                break;
            }
            out.putLittleEndian(to + at, word);
        }
        for (; at < length; at++)
        {
            final byte one = source.getByte(start + at);
            if (one < 0)
            {
                return copyOthers(source, start + at, length - at, out, to + at);
            }
            out.putByte(to + at, one);
        }
        return to + at;
    }

    /** Copy the rest of a text, which begins with a byte that is not ASCII. */
    private int copyOthers(
        final Memory source, final int start, final int length, final Memory out, final int to)
    {
        return switch (kind)
        {
            case UTF_8 -> copyUtf8(source, start, length, out, to);
            case OTHER ->
            {
                // An encoding whose state spans bytes is only broken here by an ASCII byte, which ends a character.
                final byte[] bytes = source.getBytes(start, length);
                final byte[] text = new String(bytes, charset).getBytes(StandardCharsets.UTF_8);
                out.putBytes(to, text);
                yield to + text.length;
            }
            default -> copyBytes(source, start, length, out, to);
        };
    }

    private int copyBytes(
        final Memory source, final int start, final int length, final Memory out, final int to)
    {
        int next = to;
        for (int at = start; at < start + length; at++)
        {
            next = putByte(source.getByte(at) & 0xFF, out, next);
        }
        return next;
    }

    /** Write one byte as a character of its own. Returns the index behind it. */
    int putByte(final int one, final Memory out, final int to)
    {
        if (one < 0x80)
        {
            out.putByte(to, (byte)one);
            return to + 1;
        }
        if (kind != Kind.LATIN_1)
        {
            return putReplacement(out, to);
        }
        out.putByte(to, (byte)(0xC0 | one >> 6));
        out.putByte(to + 1, (byte)(0x80 | one & 0x3F));
        return to + 2;
    }

    private static int copyUtf8(
        final Memory source, final int start, final int length, final Memory out, final int to)
    {
        int next = to;
        int at = start;
        final int end = start + length;
        while (at < end)
        {
            final int bytes = characterLength(source, at, end);
            if (bytes == 0)
            {
                next = putReplacement(out, next);
                at++;
                continue;
            }
            for (int index = 0; index < bytes; index++)
            {
                out.putByte(next++, source.getByte(at++));
            }
        }
        return next;
    }

    /** Bytes of the valid character at {@code at}, or 0 if the bytes there are none. */
    private static int characterLength(final Memory source, final int at, final int end)
    {
        final int first = source.getByte(at) & 0xFF;
        if (first < 0x80)
        {
            return 1;
        }
        final int length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
        if (first < 0xC2 || first > 0xF4 || length > end - at)
        {
            return 0;
        }
        for (int index = 1; index < length; index++)
        {
            if ((source.getByte(at + index) & 0xC0) != 0x80)
            {
                return 0;
            }
        }
        final int second = source.getByte(at + 1) & 0xFF;
        final boolean isWrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
            (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
        return isWrong ? 0 : length;
    }

    private static int putReplacement(final Memory out, final int to)
    {
        out.putByte(to, (byte)0xEF);
        out.putByte(to + 1, (byte)0xBF);
        out.putByte(to + 2, (byte)0xBD);
        return to + 3;
    }
}

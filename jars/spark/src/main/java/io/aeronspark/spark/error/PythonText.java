package io.aeronspark.spark.error;

import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/** Functions of Python on texts, so that the errors of both sources have the same texts. */
public final class PythonText
{
    /** Names that are less similar are not suggested: the ratio of {@code difflib.get_close_matches}. */
    private static final double CUTOFF = 0.6;
    /** From this length on, {@code difflib} does not compare frequent characters. */
    private static final int LONG_NAME = 200;
    private static final int SHOWN_CHARACTERS = 120;
    private static final String CUT = "...";

    private PythonText()
    {
    }

    /** Return {@code repr(text)}: in quotation marks, each character that is not printable escaped. */
    public static String repr(final String text)
    {
        final char quote = text.indexOf('\'') >= 0 && text.indexOf('"') < 0 ? '"' : '\'';
        final StringBuilder repr = new StringBuilder().append(quote);
        text.codePoints().forEach(point -> appendEscaped(repr, point, quote));
        return repr.append(quote).toString();
    }

    /** Return the text without white space at both ends, as {@code str.strip}. */
    public static String strip(final String text)
    {
        int start = 0;
        int end = text.length();
        while (start < end && isSpace(text.charAt(start)))
        {
            start++;
        }
        while (start < end && isSpace(text.charAt(end - 1)))
        {
            end--;
        }
        return text.substring(start, end);
    }

    /** Return the text, cut to 120 characters for an error. */
    public static String shorten(final String text)
    {
        if (text.codePointCount(0, text.length()) <= SHOWN_CHARACTERS)
        {
            return text;
        }
        return text.substring(0, text.offsetByCodePoints(0, SHOWN_CHARACTERS - CUT.length())) + CUT;
    }

    /** Return the name that is most similar to {@code word}, or null, as {@code difflib.get_close_matches}. */
    public static String closestMatch(final String word, final Collection<String> names)
    {
        final int[] points = word.codePoints().toArray();
        String closest = null;
        double highest = CUTOFF;
        for (final String name : names)
        {
            final double ratio = ratio(name.codePoints().toArray(), points);
            if (ratio > highest || ratio == highest && (closest == null || compare(name, closest) > 0))
            {
                closest = name;
                highest = ratio;
            }
        }
        return closest;
    }

    /** Compare two texts by their code points, as Python does. */
    public static int compare(final String one, final String other)
    {
        return Arrays.compare(one.codePoints().toArray(), other.codePoints().toArray());
    }

    private static void appendEscaped(final StringBuilder repr, final int point, final char quote)
    {
        switch (point)
        {
            case '\t' -> repr.append("\\t");
            case '\n' -> repr.append("\\n");
            case '\r' -> repr.append("\\r");
            default ->
            {
                if (point == quote || point == '\\')
                {
                    repr.append('\\').append((char)point);
                }
                else if (isPrintable(point))
                {
                    repr.appendCodePoint(point);
                }
                else
                {
                    final String format = point < 0x100 ? "\\x%02x" : point < 0x10000 ? "\\u%04x" : "\\U%08x";
                    repr.append(String.format(format, point));
                }
            }
        }
    }

    private static boolean isPrintable(final int point)
    {
        return switch (Character.getType(point))
        {
            case Character.CONTROL, Character.FORMAT, Character.SURROGATE, Character.PRIVATE_USE, Character.UNASSIGNED,
                Character.LINE_SEPARATOR, Character.PARAGRAPH_SEPARATOR -> false;
            case Character.SPACE_SEPARATOR -> point == ' ';
            default -> true;
        };
    }

    private static boolean isSpace(final char character)
    {
        return Character.isWhitespace(character) || Character.isSpaceChar(character) || character == '\u0085';
    }

    /** The share of equal characters in matching blocks, {@code SequenceMatcher(None, one, other).ratio()}. */
    private static double ratio(final int[] one, final int[] other)
    {
        final int length = one.length + other.length;
        return length == 0 ? 1.0 : 2.0 * matches(one, 0, one.length, other, 0, other.length, popular(other)) / length;
    }

    private static Set<Integer> popular(final int[] points)
    {
        final Set<Integer> popular = new HashSet<>();
        if (points.length >= LONG_NAME)
        {
            final Map<Integer, Integer> counts = new HashMap<>();
            Arrays.stream(points).forEach(point -> counts.merge(point, 1, Integer::sum));
            counts.forEach((point, count) ->
            {
                if (count > points.length / 100 + 1)
                {
                    popular.add(point);
                }
            });
        }
        return popular;
    }

    private static int matches(
        final int[] one,
        final int oneStart,
        final int oneEnd,
        final int[] other,
        final int otherStart,
        final int otherEnd,
        final Set<Integer> popular)
    {
        int bestOne = oneStart;
        int bestOther = otherStart;
        int best = 0;
        int[] lengths = new int[otherEnd - otherStart + 1];
        for (int i = oneStart; i < oneEnd; i++)
        {
            final int[] next = new int[lengths.length];
            for (int j = otherStart; j < otherEnd; j++)
            {
                if (one[i] == other[j] && !popular.contains(other[j]))
                {
                    final int length = lengths[j - otherStart] + 1;
                    next[j - otherStart + 1] = length;
                    if (length > best)
                    {
                        bestOne = i - length + 1;
                        bestOther = j - length + 1;
                        best = length;
                    }
                }
            }
            lengths = next;
        }
        while (bestOne > oneStart && bestOther > otherStart && one[bestOne - 1] == other[bestOther - 1])
        {
            bestOne--;
            bestOther--;
            best++;
        }
        while (bestOne + best < oneEnd && bestOther + best < otherEnd && one[bestOne + best] == other[bestOther + best])
        {
            best++;
        }
        if (best == 0)
        {
            return 0;
        }
        return best + matches(one, oneStart, bestOne, other, otherStart, bestOther, popular) +
            matches(one, bestOne + best, oneEnd, other, bestOther + best, otherEnd, popular);
    }
}

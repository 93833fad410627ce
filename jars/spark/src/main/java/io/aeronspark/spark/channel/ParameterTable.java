package io.aeronspark.spark.channel;

import com.fasterxml.jackson.databind.JsonNode;
import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.error.PythonText;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The parameters of Aeron's channels, with the check of each value. Immutable; for all threads. */
final class ParameterTable
{
    static final ParameterTable INSTANCE = new ParameterTable();

    private static final BigInteger TERM_MIN_BYTES = BigInteger.valueOf(64 << 10);
    private static final BigInteger TERM_MAX_BYTES = BigInteger.valueOf(1 << 30);
    private static final int MTU_MAX_BYTES = 65_504;
    private static final Pattern SIZE = Pattern.compile("([0-9]{1,18})([kKmMgG]?)");
    private static final Pattern DURATION = Pattern.compile("[0-9]{1,18}(?:[num]?s)?", Pattern.CASE_INSENSITIVE);
    private static final Pattern INTEGER = Pattern.compile("[+-]?[0-9]{1,19}");

    private final Map<String, Parameter> parameters = new LinkedHashMap<>();
    private final Map<String, String> otherNames = new LinkedHashMap<>();

    private ParameterTable()
    {
        Declarations.part("channelParameters").properties().forEach(
            (entry) -> parameters.put(entry.getKey(), Parameter.of(entry.getValue())));
        Declarations.part("otherParameterNames").properties().forEach(
            (entry) -> otherNames.put(entry.getKey(), entry.getValue().textValue()));
    }

    /** Check name and value of a parameter. Throws OptionError. */
    void check(final String name, final String value)
    {
        checkName(name);
        if (value.isEmpty() || value.indexOf('|') >= 0)
        {
            throw new OptionError(
                "the channel parameter " + PythonText.repr(name) + " has the value " + PythonText.repr(value) +
                ", expected a text without '|'",
                "Give it a value, or omit the parameter");
        }
        try
        {
            parameters.get(name).check(value);
        }
        catch (final IllegalArgumentException ex)
        {
            throw new OptionError(
                "the channel parameter " + name + "=" + value + " " + ex.getMessage(), "Correct or omit it");
        }
    }

    /** Check the name of a parameter. Throws OptionError with the most similar name. */
    void checkName(final String name)
    {
        if (!parameters.containsKey(name))
        {
            final String close = nearest(name);
            throw new OptionError(
                "Aeron 1.51 has no channel parameter " + PythonText.repr(name),
                close == null ?
                "Choose from " + String.join(", ", new TreeSet<>(parameters.keySet())) :
                "Did you mean " + PythonText.repr(close) + "?");
        }
    }

    /** Return the bytes of a size such as {@code 64k}. Throws IllegalArgumentException with a phrase. */
    static BigInteger parseSize(final String text)
    {
        final Matcher match = SIZE.matcher(text);
        if (!match.matches())
        {
            throw new IllegalArgumentException("is not a size such as 65536, 64k, 16m or 1g");
        }
        final int shift = 10 * " kmg".indexOf(match.group(2).isEmpty() ? " " : match.group(2).toLowerCase(Locale.ROOT));
        return new BigInteger(match.group(1)).shiftLeft(shift);
    }

    private String nearest(final String name)
    {
        final String spelt = PythonText.strip(name)
            .replaceAll("(?<=[a-z])(?=[A-Z])", "-").replace('_', '-').toLowerCase(Locale.ROOT);
        if (parameters.containsKey(spelt))
        {
            return spelt;
        }
        final String other = otherNames.get(spelt);
        return other != null ? other : PythonText.closestMatch(spelt, parameters.keySet());
    }

    /** The type of a parameter's value; {@code words} are texts that a number may have instead. */
    private record Parameter(String type, BigInteger low, BigInteger high, List<String> words)
    {
        static Parameter of(final JsonNode declared)
        {
            final List<String> words = new ArrayList<>();
            declared.required("words").forEach((word) -> words.add(word.textValue()));
            return new Parameter(
                declared.required("type").textValue(),
                declared.required("low").bigIntegerValue(),
                declared.required("high").bigIntegerValue(),
                words);
        }

        void check(final String text)
        {
            switch (type)
            {
                case "text" -> {}
                case "size" -> parseSize(text);
                case "term length" -> checkTermLength(text);
                case "mtu" -> checkMtu(text);
                case "duration" -> require(
                    DURATION.matcher(text).matches(), "is not a duration such as 5s, 200ms, 10us or 1000ns");
                case "true or false" -> require(
                    "true".equals(text) || "false".equals(text), "is neither true nor false");
                case "word" -> require(words.contains(text), "is not one of " + String.join(", ", words));
                case "number" -> checkNumber(text);
                case "session id" -> checkSessionId(text);
                default -> throw new IllegalStateException(type);
            }
        }

        private void checkNumber(final String text)
        {
            if (words.contains(text))
            {
                return;
            }
            if (!INTEGER.matcher(text).matches() || !isBetween(new BigInteger(text), low, high))
            {
                throw new IllegalArgumentException(
                    "is not a number from " + low + " to " + high +
                    (words.isEmpty() ? "" : ", nor " + String.join(" nor ", words)));
            }
        }

        private void checkSessionId(final String text)
        {
            if (text.startsWith("tag:"))
            {
                new Parameter("number", BigInteger.ZERO, BigInteger.valueOf(Long.MAX_VALUE), List.of())
                    .checkNumber(text.substring("tag:".length()));
            }
            else
            {
                checkNumber(text);
            }
        }

        private static void checkTermLength(final String text)
        {
            final BigInteger size = parseSize(text);
            require(
                isBetween(size, TERM_MIN_BYTES, TERM_MAX_BYTES) && size.bitCount() == 1,
                "is not a power of two from 64k to 1g");
        }

        private static void checkMtu(final String text)
        {
            final BigInteger size = parseSize(text);
            final int alignment = AeronUri.FRAME_ALIGNMENT;
            require(
                isBetween(size, BigInteger.valueOf(alignment + 1), BigInteger.valueOf(MTU_MAX_BYTES)) &&
                size.intValue() % alignment == 0,
                "is not a multiple of 32 from 64 to 65504");
        }

        private static boolean isBetween(final BigInteger number, final BigInteger low, final BigInteger high)
        {
            return low.compareTo(number) <= 0 && number.compareTo(high) <= 0;
        }

        private static void require(final boolean isRight, final String phrase)
        {
            if (!isRight)
            {
                throw new IllegalArgumentException(phrase);
            }
        }
    }
}

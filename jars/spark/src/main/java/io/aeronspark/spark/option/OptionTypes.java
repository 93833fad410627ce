package io.aeronspark.spark.option;

import io.aeronspark.spark.channel.AeronUri;
import io.aeronspark.spark.error.PythonText;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.DateTimeException;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** The parsers of the types of options, by the rules of {@code options/values} and {@code texts} in Python. */
final class OptionTypes
{
    static final String EMBEDDED = "embedded";

    private static final BigInteger INT64_MAX = BigInteger.valueOf(Long.MAX_VALUE);
    private static final BigInteger NANOS = BigInteger.valueOf(1_000_000_000);
    private static final Pattern WHOLE = Pattern.compile("[+-]?[0-9]{1,19}");
    private static final Pattern SIZE = Pattern.compile("([0-9]{1,18})\\s*(?:([kmgt])(?:i?b)?|b)?");
    private static final Pattern DURATION =
        Pattern.compile("([0-9]{1,18}(?:\\.[0-9]{1,9})?)\\s*(ns|us|ms|s|min|m|h|d)?");
    private static final Map<String, Long> DURATION_UNITS_NS = Map.of(
        "ns", 1L,
        "us", 1_000L,
        "ms", 1_000_000L,
        "s", 1_000_000_000L,
        "m", 60_000_000_000L,
        "min", 60_000_000_000L,
        "h", 3_600_000_000_000L,
        "d", 86_400_000_000_000L);
    private static final Pattern MOMENT = Pattern.compile(
        "([0-9]{4})-([0-9]{2})-([0-9]{2})" + // day
        "(?:(?:[Tt]|\\s+)([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?(?:[.,]([0-9]{1,9}))?)?" + // time of day, fraction
        "\\s*(?:[Zz]|([+-])([0-9]{2})(?::?([0-5][0-9]))?)?"); // zone
    private static final String MOMENT_EXPECTED =
        "an ISO time such as 2026-03-01T09:30:00Z, or a relative one such as -10min";
    private static final Pattern ARCHIVE_COMMA =
        Pattern.compile(",(?=\\s*(?:aeron(?:-spy)?:|embedded(?![0-9A-Za-z_])|,|\\z))");
    private static final Pattern MESSAGE_NAME = Pattern.compile("[\\p{L}\\p{N}_][\\p{L}\\p{N}_.-]*|\\*");
    private static final Pattern DECIMAL =
        Pattern.compile("decimal\\(\\s*([0-9]{1,2})\\s*,\\s*([0-9]{1,2})\\s*\\)", Pattern.CASE_INSENSITIVE);
    private static final Map<String, Integer> TIME_DIGITS = Map.of("s", 0, "ms", 3, "us", 6, "ns", 9);

    private OptionTypes()
    {
    }

    static String text(final String text, final Option option)
    {
        return text;
    }

    static Boolean flag(final String text, final Option option)
    {
        final String lower = OptionTable.lower(text);
        if (!"true".equals(lower) && !"false".equals(lower))
        {
            throw new IllegalArgumentException("true or false");
        }
        return "true".equals(lower);
    }

    /** One of the option's choices, in any case. */
    static String choice(final String text, final Option option)
    {
        final List<String> choices = option.choices();
        for (final String choice : choices)
        {
            if (choice.equals(text.toLowerCase(Locale.ROOT)) || choice.equals(text.toUpperCase(Locale.ROOT)))
            {
                return choice;
            }
        }
        final int last = choices.size() - 1;
        throw new IllegalArgumentException(
            (last == 0 ? "" : String.join(", ", choices.subList(0, last))) + " or " + choices.get(last));
    }

    static Long whole(final String text, final Option option)
    {
        return whole(text, option.low(), option.high());
    }

    /** A whole number whose limits are within 32 bits. */
    static Integer int32(final String text, final Option option)
    {
        return whole(text, option).intValue();
    }

    /** Bytes. */
    static Long size(final String text, final Option option)
    {
        final Matcher match = SIZE.matcher(OptionTable.lower(text));
        if (!match.matches())
        {
            throw new IllegalArgumentException("a size in bytes such as 512KiB, 64MiB, 1GiB or 1048576");
        }
        final int shift = match.group(2) == null ? 0 : 10 * " kmgt".indexOf(match.group(2));
        final BigInteger number = new BigInteger(match.group(1)).shiftLeft(shift);
        if (!isBetween(number, option.low(), option.high()))
        {
            throw new IllegalArgumentException("a size " + bounds(option.low(), option.high()) + " bytes");
        }
        return number.longValueExact();
    }

    /** Nanoseconds above zero. */
    static Long duration(final String text, final Option option)
    {
        final Matcher match = DURATION.matcher(OptionTable.lower(text));
        BigInteger nanos = BigInteger.ZERO;
        if (match.matches())
        {
            final long unit = DURATION_UNITS_NS.get(match.group(2) == null ? "s" : match.group(2));
            nanos = new BigDecimal(match.group(1)).multiply(BigDecimal.valueOf(unit)).toBigInteger();
        }
        if (!isBetween(nanos, BigInteger.ONE, INT64_MAX))
        {
            throw new IllegalArgumentException("a duration above zero such as 100ms, 30s, 15min or 1h");
        }
        return nanos.longValueExact();
    }

    static Moment moment(final String text, final Option option)
    {
        if (text.startsWith("-"))
        {
            try
            {
                return new Moment(null, duration(PythonText.strip(text.substring(1)), option));
            }
            catch (final IllegalArgumentException ex)
            {
                throw new IllegalArgumentException(MOMENT_EXPECTED);
            }
        }
        final Matcher match = MOMENT.matcher(text);
        if (!match.matches())
        {
            throw new IllegalArgumentException(MOMENT_EXPECTED);
        }
        final BigInteger fixedNs = BigInteger.valueOf(secondsOf(match)).multiply(NANOS).add(fractionOf(match.group(7)));
        if (fixedNs.abs().compareTo(INT64_MAX) > 0)
        {
            throw new IllegalArgumentException(
                "a time between the years 1678 and 2261: publish times are 64 bits of nanoseconds");
        }
        return new Moment(fixedNs.longValueExact(), null);
    }

    static TimestampFrom timestampFrom(final String text, final Option option)
    {
        final String lower = OptionTable.lower(text);
        if ("reserved-ns".equals(lower) || "reserved-ms".equals(lower))
        {
            return new TimestampFrom(lower, 0);
        }
        try
        {
            return new TimestampFrom(
                "payload", (int)whole(text, BigInteger.ZERO, BigInteger.valueOf(Integer.MAX_VALUE)));
        }
        catch (final IllegalArgumentException ex)
        {
            throw new IllegalArgumentException(
                "reserved-ns, reserved-ms, or the byte offset of a nanosecond time in the payload");
        }
    }

    /** Aeron session ids, without repetition. */
    static List<Integer> sessionIds(final String text, final Option option)
    {
        final Set<Integer> ids = new LinkedHashSet<>();
        try
        {
            for (final String part : text.split(",", -1))
            {
                ids.add((int)whole(
                    PythonText.strip(part),
                    BigInteger.valueOf(Integer.MIN_VALUE),
                    BigInteger.valueOf(Integer.MAX_VALUE)));
            }
        }
        catch (final IllegalArgumentException ex)
        {
            throw new IllegalArgumentException("Aeron session ids (32-bit whole numbers) separated by commas");
        }
        return List.copyOf(ids);
    }

    static String channel(final String text, final Option option)
    {
        AeronUri.parse(text);
        return text;
    }

    /** A channel, or {@code response} for Aeron's response channels. */
    static String responseChannel(final String text, final Option option)
    {
        return "response".equals(OptionTable.lower(text)) ? "response" : channel(text, option);
    }

    /** Control channels of archives, or {@code embedded}. */
    static List<String> archives(final String text, final Option option)
    {
        final List<String> parts = Stream.of(ARCHIVE_COMMA.split(text, -1)).map(PythonText::strip).toList();
        if (parts.contains(""))
        {
            throw new IllegalArgumentException("control channel URIs separated by commas, or embedded");
        }
        if (new HashSet<>(parts).size() != parts.size())
        {
            throw new IllegalArgumentException("archives without repetition");
        }
        return parts.stream()
            .map((part) -> EMBEDDED.equals(OptionTable.lower(part)) ? EMBEDDED : channel(part, option))
            .toList();
    }

    /** Names or template ids of SBE messages, or {@code *}. */
    static List<String> messages(final String text, final Option option)
    {
        final List<String> names = Stream.of(text.split(",", -1)).map(PythonText::strip).toList();
        final boolean isRight = names.stream().allMatch((name) -> MESSAGE_NAME.matcher(name).matches()) &&
            new HashSet<>(names).size() == names.size() && (names.size() == 1 || !names.contains("*"));
        if (!isRight)
        {
            throw new IllegalArgumentException(
                "a message's name or template id, several separated by commas, or '*'");
        }
        return names;
    }

    static DecimalColumns decimals(final String text, final Option option)
    {
        if ("exact".equals(text) || "double".equals(text))
        {
            return new DecimalColumns(text, 0, 0);
        }
        final Matcher match = DECIMAL.matcher(text);
        final int precision = match.matches() ? Integer.parseInt(match.group(1)) : 0;
        if (precision < 1 || precision > 38 || Integer.parseInt(match.group(2)) > precision)
        {
            throw new IllegalArgumentException(
                "'exact', 'double' or 'decimal(precision,scale)' with a precision of at most 38");
        }
        return new DecimalColumns("decimal", precision, Integer.parseInt(match.group(2)));
    }

    static TimeColumns times(final String text, final Option option)
    {
        if ("explicit".equals(text) || "none".equals(text))
        {
            return new TimeColumns("explicit".equals(text), Map.of());
        }
        final Map<String, Integer> units = new LinkedHashMap<>();
        final List<String> parts = new ArrayList<>(Arrays.asList(text.split(",", -1)));
        for (final String part : parts)
        {
            final String field = PythonText.strip(part);
            final int colon = field.lastIndexOf(':');
            final Integer digits = TIME_DIGITS.get(field.substring(colon + 1));
            if (colon <= 0 || digits == null)
            {
                throw new IllegalArgumentException(
                    "'explicit', 'none', or fields with units s, ms, us or ns, such as 'sendingTime:us'");
            }
            units.put(field.substring(0, colon), digits);
        }
        if (units.size() != parts.size())
        {
            throw new IllegalArgumentException("one unit for each field");
        }
        return new TimeColumns(true, units);
    }

    private static long whole(final String text, final BigInteger low, final BigInteger high)
    {
        if (!WHOLE.matcher(text).matches() || !isBetween(new BigInteger(text), low, high))
        {
            throw new IllegalArgumentException("a whole number " + bounds(low, high));
        }
        return Long.parseLong(text);
    }

    private static boolean isBetween(final BigInteger number, final BigInteger low, final BigInteger high)
    {
        return low.compareTo(number) <= 0 && number.compareTo(high) <= 0;
    }

    private static String bounds(final BigInteger low, final BigInteger high)
    {
        return INT64_MAX.equals(high) ? "of at least " + low : "from " + low + " to " + high;
    }

    /** Return the seconds since 1970 of a matched time, without its fraction. */
    private static long secondsOf(final Matcher match)
    {
        final int zoneHours = number(match.group(9));
        final int zoneSeconds = 3600 * zoneHours + 60 * number(match.group(10));
        try
        {
            final LocalDateTime time = LocalDateTime.of(
                number(match.group(1)),
                number(match.group(2)),
                number(match.group(3)),
                number(match.group(4)),
                number(match.group(5)),
                number(match.group(6)));
            if (time.getYear() < 1 || zoneHours > 23)
            {
                throw new IllegalArgumentException(MOMENT_EXPECTED);
            }
            return time.toEpochSecond(ZoneOffset.UTC) - ("-".equals(match.group(8)) ? -zoneSeconds : zoneSeconds);
        }
        catch (final DateTimeException ex) // for example the 30th of February
        {
            throw new IllegalArgumentException(MOMENT_EXPECTED);
        }
    }

    private static int number(final String digits)
    {
        return digits == null ? 0 : Integer.parseInt(digits);
    }

    private static BigInteger fractionOf(final String digits)
    {
        return digits == null ? BigInteger.ZERO : new BigInteger((digits + "000000000").substring(0, 9));
    }
}

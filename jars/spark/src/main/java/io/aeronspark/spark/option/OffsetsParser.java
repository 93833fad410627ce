package io.aeronspark.spark.option;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import io.aeronspark.spark.channel.AeronUri;
import io.aeronspark.spark.error.PythonText;

import java.io.IOException;
import java.math.BigInteger;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Pattern;

/** Parses {@code earliest}, {@code latest}, or JSON of recordings to positions. */
final class OffsetsParser
{
    private static final JsonFactory JSON = new JsonFactory();
    // no half of a surrogate pair
    private static final Pattern NAME = Pattern.compile("(?:[^\\x{D800}-\\x{DFFF}\n]+/)?[0-9]{1,19}");
    private static final Map<String, Long> EDGES =
        Map.of("earliest", WantedOffsets.EARLIEST, "latest", WantedOffsets.LATEST);
    private static final String EXPECTED =
        "earliest, latest, or JSON of recordings to positions such as {\"embedded/7\": 4096, " +
        "\"embedded/8\": \"latest\"}";

    private OffsetsParser()
    {
    }

    static WantedOffsets starting(final String text, final Option option)
    {
        return parse(text, WantedOffsets.EARLIEST);
    }

    static WantedOffsets ending(final String text, final Option option)
    {
        return parse(text, WantedOffsets.LATEST);
    }

    /** With the value of the recordings that the JSON does not name. */
    private static WantedOffsets parse(final String text, final long others)
    {
        final Long edge = EDGES.get(OptionTable.lower(text));
        if (edge != null)
        {
            return new WantedOffsets(edge, Map.of());
        }
        final Map<String, Long> named = new LinkedHashMap<>();
        IllegalArgumentException error = null;
        try (JsonParser parser = JSON.createParser(text))
        {
            if (parser.nextToken() != JsonToken.START_OBJECT)
            {
                throw new IllegalArgumentException(EXPECTED);
            }
            while (parser.nextToken() != JsonToken.END_OBJECT)
            {
                final String name = parser.currentName();
                parser.nextToken();
                // a text that is not JSON has another error, also behind a wrong value
                error = error == null ? add(named, name, parser) : error;
                parser.skipChildren();
            }
            if (parser.nextToken() != null)
            {
                throw new IllegalArgumentException(EXPECTED);
            }
        }
        catch (final IOException ex)
        {
            throw new IllegalArgumentException(EXPECTED);
        }
        if (error != null)
        {
            throw error;
        }
        return new WantedOffsets(others, named);
    }

    /** Return the error of a name or its value, or null. */
    private static IllegalArgumentException add(
        final Map<String, Long> named, final String name, final JsonParser parser) throws IOException
    {
        final String quoted = PythonText.repr(name);
        if (named.containsKey(name))
        {
            return new IllegalArgumentException("JSON that names each recording once, not " + quoted + " twice");
        }
        if (!NAME.matcher(name).matches())
        {
            return new IllegalArgumentException(
                "JSON whose names are recordings, archive/id or only the id, not " + quoted);
        }
        final JsonToken token = parser.currentToken();
        final Long edge = token == JsonToken.VALUE_STRING ? EDGES.get(parser.getText()) : null;
        if (edge != null)
        {
            named.put(name, edge);
            return null;
        }
        final BigInteger position =
            token == JsonToken.VALUE_NUMBER_INT ? new BigInteger(parser.getText()) : BigInteger.ONE.negate();
        if (position.signum() < 0 || position.bitLength() > 63)
        {
            return new IllegalArgumentException(
                "JSON whose values are positions, \"earliest\" or \"latest\"; the value of " + quoted + " is " +
                shown(token, parser));
        }
        if (position.longValue() % AeronUri.FRAME_ALIGNMENT != 0)
        {
            return new IllegalArgumentException(
                "JSON whose positions are multiples of " + AeronUri.FRAME_ALIGNMENT + ", where messages begin; the " +
                "position of " + quoted + " is " + position);
        }
        named.put(name, position.longValue());
        return null;
    }

    private static String shown(final JsonToken token, final JsonParser parser) throws IOException
    {
        return switch (token)
        {
            case START_OBJECT -> "an object";
            case START_ARRAY -> "a list";
            case VALUE_NUMBER_INT -> new BigInteger(parser.getText()).toString();
            default -> parser.getText();
        };
    }
}

package io.aeronspark.spark.option;

import com.fasterxml.jackson.databind.JsonNode;
import io.aeronspark.spark.error.OptionError;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * A declared option. {@code preset} is the text that is parsed if the option is not given, or null;
 * {@code batchPreset} the one in a batch read, if it differs. In the places {@code ignored} the option is accepted and
 * checked without effect. {@code low} and {@code high} limit numbers and sizes.
 */
record Option(
    String name,
    String preset,
    String batchPreset,
    Set<String> where,
    Set<String> ignored,
    String route,
    Set<String> formats,
    List<String> choices,
    BigInteger low,
    BigInteger high,
    String example,
    boolean isRequired)
{
    private static final Set<String> READING = Set.of(Where.READ_STREAM.declared(), Where.READ_BATCH.declared());
    private static final Set<String> ENDPOINT = Set.of("client", "server");

    static Option of(final JsonNode declared)
    {
        return new Option(
            declared.required("name").textValue(),
            declared.required("default").textValue(),
            declared.required("batchDefault").textValue(),
            new HashSet<>(texts(declared.required("where"))),
            new HashSet<>(texts(declared.required("ignored"))),
            declared.required("route").textValue(),
            new HashSet<>(texts(declared.required("formats"))),
            texts(declared.required("choices")),
            declared.required("low").bigIntegerValue(),
            declared.required("high").bigIntegerValue(),
            declared.required("example").textValue(),
            declared.required("required").booleanValue());
    }

    boolean isIn(final Where place)
    {
        return where.contains(place.declared());
    }

    boolean isForReading()
    {
        return where.stream().anyMatch(READING::contains);
    }

    boolean isOfClient()
    {
        return where.contains("client");
    }

    /** Whether only the endpoints have the option, a client or a server. */
    boolean isOfEndpointOnly()
    {
        return ENDPOINT.containsAll(where);
    }

    /** Whether this format has the option. */
    boolean isOfThisFormat()
    {
        return formats.contains(OptionTable.FORMAT);
    }

    boolean isIgnoredIn(final Where place)
    {
        return ignored.contains(place.declared());
    }

    /** Whether the option is one of {@code payload=sbe}. */
    boolean isSbe()
    {
        return name.startsWith("sbe");
    }

    /** Return the text of the default at this place, or null. */
    String presetIn(final Where place)
    {
        return place == Where.READ_BATCH && batchPreset != null ? batchPreset : preset;
    }

    /** Return a sentence with an example of the option in a program of Spark. */
    String sentence()
    {
        final char quote = example.indexOf('\'') >= 0 ? '"' : '\'';
        return "For example .option('" + name + "', " + quote + example + quote + ")";
    }

    /** Return the error for an option that only the other format has. */
    OptionError ofOtherFormat()
    {
        final String other = String.join(" or ", formats);
        if ("server".equals(route) || isOfEndpointOnly())
        {
            return new OptionError(
                "option '" + name + "' is only for the route through a server, and format('" + OptionTable.FORMAT +
                "') has only the direct route",
                "Use format('" + other + "').");
        }
        return new OptionError(
            "option '" + name + "' is only for format('" + other + "'), not for format('" + OptionTable.FORMAT + "')",
            "Use format('" + other + "'), or leave the option out.");
    }

    private static List<String> texts(final JsonNode array)
    {
        final List<String> texts = new ArrayList<>();
        array.forEach((text) -> texts.add(text.textValue()));
        return List.copyOf(texts);
    }
}

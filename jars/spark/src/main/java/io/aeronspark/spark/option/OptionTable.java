package io.aeronspark.spark.option;

import com.fasterxml.jackson.databind.JsonNode;
import io.aeronspark.spark.channel.Declarations;
import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.error.PythonText;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/** All declared options, also those of the other format. Immutable; for all threads. */
final class OptionTable
{
    /** The name of this source in Spark. */
    static final String FORMAT = "aeron-jvm";
    static final OptionTable INSTANCE = new OptionTable();

    private final List<Option> options = new ArrayList<>();
    private final Map<String, List<Option>> byName = new HashMap<>();
    private final Set<String> sparkOptions = new HashSet<>();
    /** Names of Kafka's source in lower case, and what replaces them. One that ends with a dot is a prefix. */
    private final Map<String, String> kafkaOptions = new HashMap<>();

    private OptionTable()
    {
        for (final JsonNode declared : Declarations.part("options"))
        {
            final Option option = Option.of(declared);
            options.add(option);
            byName.computeIfAbsent(lower(option.name()), (name) -> new ArrayList<>()).add(option);
        }
        Declarations.part("sparkOptions").forEach((name) -> sparkOptions.add(name.textValue()));
        Declarations.part("kafkaOptions").properties().forEach(
            (entry) -> kafkaOptions.put(entry.getKey(), entry.getValue().textValue()));
    }

    static String lower(final String name)
    {
        return name.toLowerCase(Locale.ROOT);
    }

    /** Return the options with this name, in any case: at most one for each place. */
    List<Option> named(final String name)
    {
        return byName.getOrDefault(lower(name), List.of());
    }

    /** Whether the option with this name is for batch reads, and not for streaming reads. */
    boolean isForBatchReadsOnly(final String name)
    {
        return named(name).stream().anyMatch((option) -> option.isIn(Where.READ_BATCH)) &&
            named(name).stream().noneMatch((option) -> option.isIn(Where.READ_STREAM));
    }

    /** Whether Spark itself passes an option with this name, in lower case, to a source or a sink. */
    boolean isOfSpark(final String lower)
    {
        return sparkOptions.contains(lower) || lower.startsWith("_") || lower.startsWith("spark.");
    }

    /** Return the error for a name that no option has. */
    OptionError unknown(final String name, final Where where)
    {
        final String replacement = replacementOf(lower(name));
        if (replacement != null)
        {
            return new OptionError(
                "option '" + PythonText.shorten(name) + "' is one of Spark's Kafka source or sink", replacement);
        }
        final Map<String, String> known = new TreeMap<>();
        for (final Option option : options)
        {
            if (option.isIn(where) && option.isOfThisFormat())
            {
                known.put(lower(option.name()), option.name());
            }
        }
        final String nearest = PythonText.closestMatch(lower(name), known.keySet());
        return new OptionError(
            "unknown option '" + PythonText.shorten(name) + "'",
            nearest == null ?
            "The options are: " + String.join(", ", known.values()) :
            "Did you mean '" + known.get(nearest) + "'?");
    }

    private String replacementOf(final String lower)
    {
        final String prefix = kafkaOptions.keySet().stream()
            .filter((name) -> name.endsWith(".") && lower.startsWith(name))
            .max(Comparator.comparingInt(String::length))
            .orElse(lower);
        return kafkaOptions.getOrDefault(lower, kafkaOptions.get(prefix));
    }
}

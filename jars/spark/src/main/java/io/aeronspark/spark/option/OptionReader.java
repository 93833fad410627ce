package io.aeronspark.spark.option;

import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.error.PythonText;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads the options that a program gives in one place. Names are case-insensitive. */
final class OptionReader
{
    private final OptionTable table = OptionTable.INSTANCE;
    private final Map<String, String> texts = new LinkedHashMap<>();
    private final Where where;

    /** Throws OptionError for an option that is unknown, belongs elsewhere, is empty, or is given twice differently. */
    OptionReader(final Map<String, String> options, final Where where)
    {
        this.where = where;
        options.forEach(this::add);
    }

    Where where()
    {
        return where;
    }

    boolean contains(final String name)
    {
        return texts.containsKey(name);
    }

    /** Return the given options, in their order. */
    List<Option> givenOptions()
    {
        return texts.keySet().stream().map(this::option).toList();
    }

    /** Return the option of this name; the one of another place if this place has none. */
    Option option(final String name)
    {
        final List<Option> named = table.named(name);
        return named.stream().filter((option) -> option.isIn(where)).findFirst().orElse(named.get(0));
    }

    /**
     * Parse the given text of an option, or its default; return null if it has neither.
     * Throws OptionError with the option's name, also if the option is required and missing.
     */
    <T> T value(final String name, final OptionType<T> type)
    {
        final Option option = option(name);
        final String text = texts.getOrDefault(name, option.presetIn(where));
        if (text == null)
        {
            if (option.isRequired())
            {
                throw new OptionError("option '" + name + "' is required", option.sentence());
            }
            return null;
        }
        try
        {
            return type.parse(text, option);
        }
        catch (final OptionError ex)
        {
            throw new OptionError(
                "option '" + name + "': " + ex.what(), ex.remedy().isEmpty() ? option.sentence() : ex.remedy());
        }
        catch (final IllegalArgumentException ex)
        {
            throw new OptionError(
                "option '" + name + "' must be " + ex.getMessage() + ", not '" + PythonText.shorten(text) + "'",
                option.sentence());
        }
    }

    private void add(final String name, final String value)
    {
        final Option option = declared(name);
        if (option == null || value == null)
        {
            return;
        }
        final String text = PythonText.strip(value);
        if (text.isEmpty())
        {
            throw new OptionError("option '" + option.name() + "' has no value", option.sentence());
        }
        final String earlier = texts.putIfAbsent(option.name(), text);
        if (earlier != null && !earlier.equals(text))
        {
            throw new OptionError(
                "option '" + option.name() + "' is given twice, with different values", "Give it once.");
        }
    }

    /** Return the declared option, or null for one of Spark itself. */
    private Option declared(final String name)
    {
        final List<Option> found = table.named(name).stream().filter((option) -> !option.isOfEndpointOnly()).toList();
        for (final Option option : found)
        {
            if (option.isIn(where))
            {
                return ofThisFormat(option);
            }
        }
        if (!found.isEmpty())
        {
            throw misplaced(found.get(0));
        }
        final String lower = OptionTable.lower(name);
        if ("checkpointlocation".equals(lower) && where.isReading())
        {
            throw new OptionError(
                "option 'checkpointLocation' has no effect on reading",
                "Give it to the query: df.writeStream.option('checkpointLocation', FOLDER). A batch has none.");
        }
        return table.isOfSpark(lower) ? null : ofEndpoint(name);
    }

    private Option ofEndpoint(final String name)
    {
        final List<Option> found = table.named(name);
        if (found.isEmpty())
        {
            throw table.unknown(name, where);
        }
        for (final Option option : found)
        {
            if (option.isOfClient())
            {
                return ofThisFormat(option);
            }
        }
        throw new OptionError(
            "option '" + found.get(0).name() + "' is only for a server, not for a client", "Leave the option out.");
    }

    private static Option ofThisFormat(final Option option)
    {
        if (!option.isOfThisFormat())
        {
            throw option.ofOtherFormat();
        }
        return option;
    }

    private OptionError misplaced(final Option option)
    {
        if (where.isReading() && option.isForReading())
        {
            return new OptionError(
                "option '" + option.name() + "' is only for batch reads (spark.read), not for streaming reads",
                "Leave the option out, or read with spark.read.");
        }
        return new OptionError(
            "option '" + option.name() + "' is only for " +
            (where.isReading() ? "writing, not for reading" : "reading, not for writing"),
            "Leave the option out.");
    }
}

package io.aeronspark.spark.read;

import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.error.PythonText;
import io.aeronspark.spark.option.ReadOptions;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Refuses what this source does not read, and columns that its rows do not have. */
final class Refusals
{
    private Refusals()
    {
    }

    static void check(final ReadOptions options, final StructType chosen, final StructType available)
    {
        final String payload = options.payload();
        if (!"raw".equals(payload) && !"auto".equals(payload))
        {
            throw payload(payload);
        }
        checkColumns(chosen, available);
    }

    /** Return the error for messages that this source does not decode. */
    static OptionError payload(final String payload)
    {
        return new OptionError(
            "format('aeron-jvm') does not read payload=" + payload + " yet",
            "Use format('aeron'), or payload=raw, whose values are the unchanged messages.");
    }

    private static void checkColumns(final StructType chosen, final StructType available)
    {
        final Map<String, DataType> types = new LinkedHashMap<>();
        for (final StructField field : available.fields())
        {
            types.put(field.name(), field.dataType());
        }
        for (final StructField field : chosen.fields())
        {
            final DataType type = types.get(field.name());
            if (!field.dataType().equals(type))
            {
                throw wrongColumn(chosen, available, field.name(), type);
            }
        }
    }

    private static OptionError wrongColumn(
        final StructType chosen, final StructType available, final String name, final DataType type)
    {
        final String fault = type == null ? "is not one of them" : "is " + upper(type) + " there";
        final String close = type == null ? PythonText.closestMatch(name, Arrays.asList(available.fieldNames())) : null;
        return new OptionError(
            ".schema(" + PythonText.repr(ddl(chosen)) + ") was given, but a stream with payload=raw has the columns " +
            PythonText.repr(ddl(available)) + ": " + PythonText.repr(name) + " " + fault,
            (close == null ? "" : "Did you mean " + PythonText.repr(close) + "? ") +
            "Choose some of its columns, or omit .schema(...) for all of them.");
    }

    private static String ddl(final StructType schema)
    {
        return Arrays
            .stream(schema.fields())
            .map((field) -> field.name() + " " + upper(field.dataType()))
            .collect(Collectors.joining(", "));
    }

    private static String upper(final DataType type)
    {
        return type.simpleString().toUpperCase(Locale.ROOT);
    }
}

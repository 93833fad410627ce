package io.aeronspark.spark.option;

import java.io.Serializable;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The SBE integers that are times: with {@code explicit} those with a unit in the schema, and those with a unit here,
 * by field name: the number of digits after the second, 0, 3, 6 or 9.
 */
public record TimeColumns(boolean explicit, Map<String, Integer> units) implements Serializable
{
    /** Immutable. */
    public TimeColumns
    {
        units = Collections.unmodifiableMap(new LinkedHashMap<>(units));
    }
}

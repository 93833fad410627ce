package io.aeronspark.spark.option;

import java.io.Serializable;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The value of {@code startingOffsets} or {@code endingOffsets}. {@code named} maps a recording ({@code archive/id}, or
 * only the id) to a position, {@link #EARLIEST} or {@link #LATEST}, in the order of the text; {@code others} is for all
 * other recordings, and one of these two.
 */
public record WantedOffsets(long others, Map<String, Long> named) implements Serializable
{
    /** In place of a position: the first one of the recording. */
    public static final long EARLIEST = -2;
    /** In place of a position: the last one of the recording. */
    public static final long LATEST = -1;

    /** Immutable. */
    public WantedOffsets
    {
        named = Collections.unmodifiableMap(new LinkedHashMap<>(named));
    }

    /** Whether a recording, or all others, has this value. */
    boolean has(final long value)
    {
        return others == value || named.containsValue(value);
    }
}

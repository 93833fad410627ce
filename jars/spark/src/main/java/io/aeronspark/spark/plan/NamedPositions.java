package io.aeronspark.spark.plan;

import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.option.WantedOffsets;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The positions that an option names, by the keys of a stream's recordings. */
final class NamedPositions
{
    private final Map<String, Long> positions = new HashMap<>();
    private final long others;

    /**
     * @throws OptionError for a recording or a position that does not exist.
     */
    NamedPositions(
        final WantedOffsets wanted,
        final Collection<RecordingState> states,
        final List<String> archives,
        final String option)
    {
        others = wanted.others();
        final Map<String, RecordingState> byKey = new HashMap<>();
        states.forEach((state) -> byKey.put(state.key(), state));
        for (final Map.Entry<String, Long> entry : wanted.named().entrySet())
        {
            final String key = key(entry.getKey(), archives, option);
            final RecordingState state = byKey.get(key);
            if (state == null)
            {
                throw new OptionError(
                    "option '" + option + "' has recording " + entry.getKey() + ", which the stream does not have",
                    "Choose from its recordings: " + listed(byKey.keySet(), "none yet"));
            }
            if (positions.put(key, entry.getValue()) != null)
            {
                throw new OptionError("option '" + option + "' names recording " + key + " twice", "Give it once");
            }
            check(state, entry.getValue(), option);
        }
    }

    /** Return a position, {@link WantedOffsets#EARLIEST} or {@link WantedOffsets#LATEST}. */
    long of(final RecordingState state)
    {
        return positions.getOrDefault(state.key(), others);
    }

    private static void check(final RecordingState state, final long position, final String option)
    {
        if (position >= 0 && (position < state.start() || position > state.end()))
        {
            throw new OptionError(
                "option '" + option + "': position " + position + " is outside of recording " + state.key() +
                ", expected " + state.start() + " to " + state.end(),
                "Give a position of the recording, or 'earliest' or 'latest'");
        }
    }

    private static String key(final String name, final List<String> archives, final String option)
    {
        if (name.contains("/"))
        {
            return name;
        }
        if (archives.size() != 1)
        {
            throw new OptionError(
                "option '" + option + "' has recording " + name + ", but ids are not unique with several archives",
                "Write archive/id, with one of the archives " + listed(archives, ""));
        }
        return RecordingKey.of(archives.get(0), Long.parseLong(name));
    }

    private static String listed(final Collection<String> names, final String none)
    {
        return names.isEmpty() ? none : String.join(", ", names.stream().sorted().toList());
    }
}

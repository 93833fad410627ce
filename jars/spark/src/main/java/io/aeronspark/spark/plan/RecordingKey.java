package io.aeronspark.spark.plan;

import io.aeronspark.spark.error.PythonText;
import java.util.Comparator;
import java.util.regex.Pattern;

/** Keys of recordings, as offsets and errors have them: {@code archive/id}. An archive's name may have slashes. */
public final class RecordingKey
{
    /** The order by archive and id. */
    public static final Comparator<String> ORDER =
        Comparator.comparing(RecordingKey::archive, PythonText::compare).thenComparingLong(RecordingKey::id);

    private static final Pattern KEY = Pattern.compile(".+/(?:0|[1-9][0-9]{0,18})", Pattern.DOTALL);

    private RecordingKey()
    {
    }

    /** Return the key of a recording. */
    public static String of(final String archive, final long id)
    {
        return archive + '/' + id;
    }

    /** Throw IllegalArgumentException for a text that is not a key. */
    static void check(final String key)
    {
        if (!KEY.matcher(key).matches() || isTooLarge(key.substring(key.lastIndexOf('/') + 1)))
        {
            throw new IllegalArgumentException(PythonText.repr(key) + " is not '<archive>/<recording id>'");
        }
    }

    private static boolean isTooLarge(final String digits)
    {
        final String largest = String.valueOf(Long.MAX_VALUE);
        return digits.length() == largest.length() && digits.compareTo(largest) > 0;
    }

    /** Return the archive's name in a key. */
    public static String archive(final String key)
    {
        return key.substring(0, key.lastIndexOf('/'));
    }

    /** Return the recording's id in a key. */
    public static long id(final String key)
    {
        return Long.parseLong(key.substring(key.lastIndexOf('/') + 1));
    }

    /** Return the recording's name in errors. */
    static String named(final String key)
    {
        return "recording " + id(key) + " of archive " + archive(key);
    }
}

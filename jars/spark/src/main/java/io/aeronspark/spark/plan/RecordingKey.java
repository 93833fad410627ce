package io.aeronspark.spark.plan;

import java.util.Comparator;

/** Keys of recordings, as offsets and errors have them: {@code archive/id}. An archive's name may have slashes. */
public final class RecordingKey
{
    /** The order by archive and id. */
    public static final Comparator<String> ORDER =
        Comparator.comparing(RecordingKey::archive).thenComparingLong(RecordingKey::id);

    private RecordingKey()
    {
    }

    /** Return the key of a recording. */
    public static String of(final String archive, final long id)
    {
        return archive + '/' + id;
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

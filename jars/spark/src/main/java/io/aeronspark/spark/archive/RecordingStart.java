package io.aeronspark.spark.archive;

import io.aeronspark.spark.channel.AeronUri;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The note that this project writes into the alias of a recorded channel, and other marks in the alias. */
final class RecordingStart
{
    private static final Pattern NOTE = Pattern.compile(
        "(?<own>.*?);?aeron-spark\\(at=\\d{1,15},by=[^,()]*,query=[^,()]*\\)", Pattern.DOTALL);
    private static final Pattern SERVER_STREAM = Pattern.compile("aeron-spark:[^:]*:\\d+:[0-9a-f]+");

    private RecordingStart()
    {
    }

    /** Return the channel without the note of its recording's start. */
    static String without(final String channel)
    {
        final AeronUri uri = AeronUri.parseForeign(channel);
        final Matcher note = NOTE.matcher(alias(uri));
        if (!note.matches())
        {
            return channel;
        }
        final AeronUri plain = uri.without("alias");
        final String own = note.group("own");
        return own.isEmpty() ? plain.toString() : plain.with("alias", own).toString();
    }

    /** Whether the recording is a partition of a server's stream. */
    static boolean isOfServer(final String channel)
    {
        return SERVER_STREAM.matcher(alias(AeronUri.parseForeign(channel))).matches();
    }

    private static String alias(final AeronUri uri)
    {
        final String alias = uri.get("alias");
        return alias == null ? "" : alias;
    }
}

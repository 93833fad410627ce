package io.aeronspark.spark.archive;

import io.aeronspark.spark.channel.AeronUri;
import io.aeronspark.spark.error.OptionError;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The note that this project writes into the alias of a recorded channel, and other marks in the alias. */
final class RecordingStart
{
    /** Characters of a name, because the channel must fit into a counter's label. */
    private static final int MAX_TEXT = 100;

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

    /** Return a channel with the note of a start now, or unchanged if the URI would become too long. */
    static String with(final String channel, final String query)
    {
        final AeronUri uri = AeronUri.parseForeign(without(channel));
        final String by = System.getProperty("user.name") + "@" + Hosts.name() + " spark";
        final String note = "aeron-spark(at=" + System.currentTimeMillis() + ",by=" + quoted(by) + ",query=" +
            quoted(query) + ")";
        final String own = alias(uri);
        try
        {
            return AeronUri
                .parseForeign(uri.with("alias", own.isEmpty() ? note : own + ";" + note).toString())
                .toString();
        }
        catch (final OptionError ignored)
        {
            return channel;
        }
    }

    private static String quoted(final String text)
    {
        final String kept = text.substring(0, Math.min(text.length(), MAX_TEXT));
        return URLEncoder.encode(kept, StandardCharsets.UTF_8).replace("+", "%20");
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

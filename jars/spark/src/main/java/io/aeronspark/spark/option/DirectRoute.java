package io.aeronspark.spark.option;

import io.aeronspark.spark.channel.AeronUri;
import io.aeronspark.spark.error.OptionError;

import java.io.Serializable;
import java.util.List;

/**
 * The direct route: an Aeron stream, its archives, and this machine's media driver. {@code aeronDir},
 * {@code responseChannel}, {@code replayChannel} and {@code credentialsFile} may be null. An archive is its control
 * channel, or {@code embedded}.
 */
public record DirectRoute(
    String channel,
    int streamId,
    List<String> archive,
    String aeronDir,
    String responseChannel,
    String replayChannel,
    String credentialsFile,
    long connectTimeoutNs,
    long archiveTimeoutNs) implements Serializable
{
    static DirectRoute read(final OptionReader reader)
    {
        if (!reader.contains("channel") && !reader.contains("streamId"))
        {
            throw new OptionError(
                "no stream is named: option 'channel' is required, with 'streamId'",
                reader.option("channel").sentence() + ".option('streamId', '1001')");
        }
        final DirectRoute route = new DirectRoute(
            reader.value("channel", OptionTypes::channel),
            reader.value("streamId", OptionTypes::int32),
            reader.value("archive", OptionTypes::archives),
            reader.value("aeronDir", OptionTypes::text),
            reader.value("responseChannel", OptionTypes::responseChannel),
            reader.value("replayChannel", OptionTypes::responseChannel),
            reader.value("credentialsFile", OptionTypes::text),
            reader.value("connectTimeout", OptionTypes::duration),
            reader.value("archiveTimeout", OptionTypes::duration));
        final AeronUri uri = AeronUri.parse(route.channel);
        if (uri.isSpy() && !reader.where().isReading())
        {
            throw new OptionError(
                "option 'channel' is a spy channel (aeron-spy:), which can only be read",
                "Write to the channel itself, aeron:…");
        }
        try
        {
            uri.refuseArchiveStreams(route.streamId);
        }
        catch (final OptionError ex)
        {
            throw new OptionError("option 'streamId': " + ex.what(), ex.remedy());
        }
        return route;
    }

    /** The name of the stream in errors. */
    public String label()
    {
        return "stream " + streamId + " of " + channel;
    }

    /** The label: a log has no credentials' file. */
    @Override
    public String toString()
    {
        return label();
    }
}

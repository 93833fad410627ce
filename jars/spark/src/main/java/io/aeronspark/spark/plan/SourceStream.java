package io.aeronspark.spark.plan;

import com.fasterxml.jackson.databind.JsonNode;
import io.aeronspark.spark.channel.AeronUri;
import io.aeronspark.spark.channel.StreamIdentity;
import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.error.PythonText;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** The stream of an offset. */
public sealed interface SourceStream extends Serializable
{
    /** The name of the stream in errors. */
    String label();

    /** A stream of the direct route; {@code channel} is canonical, see {@link #canonicalChannel}. */
    record Direct(String channel, int streamId) implements SourceStream
    {
        @Override
        public String label()
        {
            return "stream " + streamId + " of " + channel;
        }
    }

    /** A stream of servers, their public keys by host and port: only to name it in the error for its checkpoint. */
    record OfServers(String name, Map<String, String> servers) implements SourceStream
    {
        @Override
        public String label()
        {
            final List<String> texts = new ArrayList<>();
            final Map<String, String> ordered = new TreeMap<>(PythonText::compare);
            ordered.putAll(servers);
            ordered.forEach((server, key) -> texts.add(server + " (key " + key + ")"));
            return "stream " + PythonText.repr(name) + " of " + String.join(" and ", texts);
        }
    }

    /** Return the stream of the option {@code channel} and a stream id. */
    static SourceStream of(final String channel, final int streamId)
    {
        return new Direct(canonicalChannel(channel), streamId);
    }

    /** Return a channel with only the identifying parameters; channels of the same streams have the same text. */
    static String canonicalChannel(final String channel)
    {
        final StreamIdentity identity = AeronUri.parseForeign(channel).identity();
        final boolean isDynamic = identity.control() != null && "dynamic".equals(identity.controlMode());
        final List<String> params = new ArrayList<>();
        // for dynamic multi-destination-cast, control identifies it
        add(params, "endpoint", isDynamic ? null : identity.endpoint());
        add(params, "control", identity.control());
        add(params, "control-mode", identity.controlMode());
        add(params, "interface", isDynamic ? null : identity.networkInterface());
        return "aeron:" + identity.media() + (params.isEmpty() ? "" : "?" + String.join("|", params));
    }

    /** Parse a stream of an offset. Throws IllegalArgumentException for other values. */
    static SourceStream parse(final JsonNode value)
    {
        if (value.isObject() && value.size() == 2 && value.has("channel") && value.has("id"))
        {
            final JsonNode id = value.get("id");
            if (value.get("channel").isTextual() && id.isIntegralNumber() && id.canConvertToInt())
            {
                try
                {
                    canonicalChannel(value.get("channel").textValue());
                }
                catch (final OptionError ex)
                {
                    throw new IllegalArgumentException(ex.what());
                }
                return new Direct(value.get("channel").textValue(), id.intValue());
            }
        }
        if (value.isObject() && value.size() == 2 && value.path("name").isTextual() && value.path("servers").isObject())
        {
            final Map<String, String> servers = new TreeMap<>();
            value.get("servers").properties().forEach(
                (server) -> servers.put(server.getKey(), server.getValue().textValue()));
            if (!servers.isEmpty() && !servers.containsValue(null))
            {
                return new OfServers(value.get("name").textValue(), servers);
            }
        }
        throw new IllegalArgumentException("it does not identify a stream");
    }

    /**
     * Return the stream of an offset that continues an offset of {@code known}, which may be null, while the query
     * reads {@code read}. Returns {@code known} itself without a change. Throws OptionError for two different streams.
     */
    static SourceStream joined(final SourceStream known, final SourceStream read)
    {
        if (known == null)
        {
            return read;
        }
        if (known instanceof Direct one && read instanceof Direct other && one.streamId == other.streamId &&
            canonicalChannel(one.channel).equals(canonicalChannel(other.channel)))
        {
            return known;
        }
        throw new OptionError(
            "the checkpoint is of " + known.label() + ", but the query reads " + read.label(),
            "Use a new checkpointLocation for this query, or give the options that name the stream of the checkpoint");
    }

    private static void add(final List<String> params, final String name, final String value)
    {
        if (value != null)
        {
            params.add(name + "=" + value);
        }
    }
}

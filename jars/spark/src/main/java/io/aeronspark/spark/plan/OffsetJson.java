package io.aeronspark.spark.plan;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.core.json.JsonReadFeature;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.BooleanNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.TextNode;
import io.aeronspark.spark.error.DataFormatError;
import io.aeronspark.spark.error.PythonText;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Function;

/**
 * Offsets as the JSON in checkpoints, which {@code log/offsets} in Python describes. Spark compares offsets as texts:
 * equal offsets have the same text in both sources.
 */
public final class OffsetJson
{
    private static final int VERSION = 1;
    private static final int SHOWN_CHARACTERS = 80;
    private static final Set<String> NAMES = Set.of(
        "begins", "done", "epochs", "fingerprints", "initial", "joined", "marks", "origin", "payload", "recordings",
        "stream", "turn", "v");
    private static final Set<String> PAYLOADS = Set.of("raw", "framed", "arrow");
    private static final String NEW_CHECKPOINT = "Use the checkpoint of this query, or a new checkpointLocation";
    private static final JsonNode EMPTY = JsonNodeFactory.instance.objectNode();
    private static final JsonMapper JSON = JsonMapper.builder()
        .enable(JsonReadFeature.ALLOW_NON_NUMERIC_NUMBERS)
        .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
        .disable(StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION)
        .build();

    private OffsetJson()
    {
    }

    /** Return the text of an offset. */
    public static String write(final QueryOffset offset)
    {
        final List<String> parts = new ArrayList<>();
        addPositions(parts, "begins", offset.begins());
        add(parts, "done", PythonJson.quote(Packing.packFinished(offset.done())));
        add(parts, "fingerprints", object(offset.fingerprints(), PythonJson::quote));
        if (offset.initial())
        {
            add(parts, "initial", "true");
        }
        addPositions(parts, "joined", offset.joined());
        if (!offset.marks().isEmpty())
        {
            add(parts, "marks", PythonJson.quote(Packing.packMarks(offset.marks())));
        }
        if (offset.origin() != null)
        {
            add(parts, "origin", object(offset.origin(), String::valueOf));
        }
        if (offset.payload() != null)
        {
            add(parts, "payload", PythonJson.quote(offset.payload()));
        }
        add(parts, "recordings", object(offset.recordings(), String::valueOf));
        if (offset.stream() != null)
        {
            add(parts, "stream", stream(offset.stream()));
        }
        if (offset.turn() != null)
        {
            add(parts, "turn", PythonJson.quote(offset.turn()));
        }
        add(parts, "v", String.valueOf(VERSION));
        return "{" + String.join(", ", parts) + "}";
    }

    /**
     * Return the text of the ends of a stream's recordings for a query's progress.
     *
     * @param lag unread bytes by recording after the last planned batch, or null before the first one.
     */
    static String report(final Map<String, Long> ends, final Map<String, Long> lag, final SourceStream stream)
    {
        final List<String> parts = new ArrayList<>();
        if (lag != null)
        {
            final long total = lag.values().stream().mapToLong(Long::longValue).sum();
            add(parts, "lag", "{\"bytes\": " + total + ", \"partitions\": " +
                object(lag, (bytes) -> "{\"bytes\": " + bytes + "}") + "}");
        }
        add(parts, "recordings", object(ends, String::valueOf));
        add(parts, "stream", stream(stream));
        add(parts, "v", String.valueOf(VERSION));
        return "{" + String.join(", ", parts) + "}";
    }

    /**
     * Parse the text of an offset.
     *
     * @throws DataFormatError for another version, another source's offset, or a damaged one.
     */
    public static QueryOffset parse(final String text)
    {
        final JsonNode value;
        try
        {
            value = JSON.readTree(text);
        }
        catch (final JsonProcessingException ex)
        {
            throw damaged("it is not a value of JSON");
        }
        checkTexts(value);
        final JsonNode version = value.path("v");
        if (version.isMissingNode())
        {
            throw new DataFormatError(
                "the checkpoint has an offset that is not one of format('aeron'): " + shown(value), NEW_CHECKPOINT);
        }
        if (!version.isIntegralNumber() || version.bigIntegerValue().signum() < 1)
        {
            throw damaged("its version is " + shown(version));
        }
        if (!version.canConvertToInt() || version.intValue() > VERSION)
        {
            throw new DataFormatError(
                "the checkpoint has an offset of version " + version.asText() + ", expected at most " + VERSION,
                "Run the query with the newer aeron-spark that wrote it, or use a new checkpointLocation");
        }
        final Set<String> unknown = new TreeSet<>(PythonText::compare);
        value.fieldNames().forEachRemaining((name) -> unknown.add(name));
        unknown.removeAll(NAMES);
        if (!unknown.isEmpty())
        {
            throw damaged("it has the unknown part " + shown(TextNode.valueOf(unknown.iterator().next())));
        }
        return parsed(value);
    }

    private static QueryOffset parsed(final JsonNode value)
    {
        final Map<String, Long> recordings = positions("recordings", value.get("recordings"));
        final Map<String, String> fingerprints = fingerprints(value.get("fingerprints"));
        if (!recordings.keySet().equals(fingerprints.keySet()))
        {
            throw damaged("its recordings and its fingerprints are not of the same recordings");
        }
        if (present(value.get("done")) == null)
        {
            throw damaged("'done' is missing");
        }
        final Map<String, Finished> done = packed("done", value.get("done"), Packing::unpackFinished);
        recordings.keySet().stream().filter(done::containsKey).min(PythonText::compare).ifPresent((twice) ->
        {
            throw damaged("it has recording " + twice + " twice");
        });
        final JsonNode initial = value.has("initial") ? value.get("initial") : BooleanNode.FALSE;
        if (!initial.isBoolean())
        {
            throw damaged("'initial' is neither true nor false");
        }
        final JsonNode turn = present(value.get("turn"));
        if (turn != null && !turn.isTextual())
        {
            throw damaged("'turn' is not a recording");
        }
        final Map<String, Long> origin = value.has("origin") ? positions("origin", value.get("origin")) : null;
        final Map<String, Long> joined = positions("joined", value.has("joined") ? value.get("joined") : EMPTY);
        final Map<String, Long> begins = positions("begins", value.has("begins") ? value.get("begins") : EMPTY);
        final Set<String> known = new HashSet<>(recordings.keySet());
        known.addAll(done.keySet());
        final String first = "it has the first position of recording ";
        checkKnown(known, origin == null ? Set.of() : origin.keySet(), first);
        checkKnown(known, joined.keySet(), first);
        checkKnown(known, begins.keySet(), first);
        final Map<String, JsonNode> epochs = recordings("epochs", value.has("epochs") ? value.get("epochs") : EMPTY);
        checkKnown(known, epochs.keySet(), "it has an epoch of recording ");
        final Map<String, Mark> marks =
            value.has("marks") ? packed("marks", value.get("marks"), Packing::unpackMarks) : Map.of();
        checkKnown(known, marks.keySet(), "it has a mark of recording ");
        final JsonNode payload = present(value.get("payload"));
        if (payload != null && !(payload.isTextual() && PAYLOADS.contains(payload.textValue())))
        {
            throw damaged("its payload is " + shown(payload));
        }
        final SourceStream stream = stream(value.get("stream"));
        if (!epochs.isEmpty() && !(stream instanceof SourceStream.OfServers))
        {
            throw damaged("it has epochs, and only a stream of servers has them");
        }
        return new QueryOffset(
            recordings,
            fingerprints,
            done,
            origin,
            initial.booleanValue(),
            joined,
            turn == null ? null : turn.textValue(),
            stream,
            begins,
            marks,
            payload == null ? null : payload.textValue());
    }

    private static void checkKnown(final Set<String> known, final Set<String> keys, final String part)
    {
        for (final String key : keys)
        {
            if (!known.contains(key))
            {
                throw damaged(part + key + ", but not its next position");
            }
        }
    }

    private static Map<String, Long> positions(final String name, final JsonNode value)
    {
        final Map<String, Long> found = new LinkedHashMap<>();
        recordings(name, value).forEach((key, position) ->
        {
            if (!position.isIntegralNumber() || !position.canConvertToLong() || position.longValue() < 0)
            {
                throw damaged(
                    "the position " + shown(position) + " of " + key + " in '" + name + "' is not a position");
            }
            found.put(key, position.longValue());
        });
        return found;
    }

    private static Map<String, String> fingerprints(final JsonNode value)
    {
        final Map<String, String> found = new LinkedHashMap<>();
        recordings("fingerprints", value).forEach((key, text) ->
        {
            if (!text.isTextual() || !text.textValue().matches("[0-9a-f]{8}"))
            {
                throw damaged("the fingerprint " + shown(text) + " of " + key + " is not eight hex digits");
            }
            found.put(key, text.textValue());
        });
        return found;
    }

    private static Map<String, JsonNode> recordings(final String name, final JsonNode value)
    {
        if (present(value) == null)
        {
            throw damaged("'" + name + "' is missing");
        }
        if (!value.isObject())
        {
            throw damaged("'" + name + "' is " + shown(value));
        }
        final Map<String, JsonNode> found = new LinkedHashMap<>();
        value.properties().forEach((one) ->
        {
            try
            {
                RecordingKey.check(one.getKey());
            }
            catch (final IllegalArgumentException ex)
            {
                throw damaged(
                    shown(TextNode.valueOf(one.getKey())) + " in '" + name +
                    "' is not a recording, <archive>/<recording id>");
            }
            found.put(one.getKey(), one.getValue());
        });
        return found;
    }

    private static <T> Map<String, T> packed(
        final String name, final JsonNode value, final Function<String, Map<String, T>> unpack)
    {
        if (!value.isTextual())
        {
            throw damaged("'" + name + "' is " + shown(value));
        }
        try
        {
            return unpack.apply(value.textValue());
        }
        catch (final IllegalArgumentException ex)
        {
            throw damaged("'" + name + "' is " + ex.getMessage());
        }
    }

    private static SourceStream stream(final JsonNode value)
    {
        try
        {
            return present(value) == null ? null : SourceStream.parse(value);
        }
        catch (final IllegalArgumentException ex)
        {
            throw damaged("'stream' is " + shown(value) + ": " + ex.getMessage());
        }
    }

    /** Return null for a value that is missing or null. */
    private static JsonNode present(final JsonNode value)
    {
        return value == null || value.isNull() ? null : value;
    }

    /** Refuse a text with half of a surrogate pair, which could not be encoded. */
    private static void checkTexts(final JsonNode value)
    {
        if (value.isTextual())
        {
            checkText(value.textValue());
        }
        value.fieldNames().forEachRemaining(OffsetJson::checkText);
        value.forEach(OffsetJson::checkTexts);
        if (value.isFloatingPointNumber() && !Double.isFinite(value.doubleValue()))
        {
            throw damaged("it is not a value of JSON: Out of range float values are not JSON compliant");
        }
    }

    private static void checkText(final String text)
    {
        if (text.codePoints().anyMatch((point) -> Character.getType(point) == Character.SURROGATE))
        {
            throw damaged("a text has half of a surrogate pair");
        }
    }

    private static DataFormatError damaged(final String cause)
    {
        return new DataFormatError(
            "the checkpoint has an offset of format('aeron') that is damaged: " + cause, NEW_CHECKPOINT);
    }

    private static String shown(final JsonNode value)
    {
        final String text = value.isTextual() ? value.textValue() : PythonJson.write(value);
        if (text.codePointCount(0, text.length()) <= SHOWN_CHARACTERS)
        {
            return text;
        }
        return text.substring(0, text.offsetByCodePoints(0, SHOWN_CHARACTERS - 3)) + "...";
    }

    private static void add(final List<String> parts, final String name, final String value)
    {
        parts.add(PythonJson.quote(name) + ": " + value);
    }

    private static void addPositions(final List<String> parts, final String name, final Map<String, Long> positions)
    {
        if (!positions.isEmpty())
        {
            add(parts, name, object(positions, String::valueOf));
        }
    }

    private static <T> String object(final Map<String, T> values, final Function<T, String> write)
    {
        final Map<String, T> ordered = new TreeMap<>(PythonText::compare);
        ordered.putAll(values);
        final List<String> members = new ArrayList<>();
        ordered.forEach((key, value) -> members.add(PythonJson.quote(key) + ": " + write.apply(value)));
        return "{" + String.join(", ", members) + "}";
    }

    private static String stream(final SourceStream stream)
    {
        if (stream instanceof SourceStream.OfServers servers)
        {
            return "{\"name\": " + PythonJson.quote(servers.name()) + ", \"servers\": " +
                object(servers.servers(), PythonJson::quote) + "}";
        }
        final SourceStream.Direct direct = (SourceStream.Direct)stream;
        return "{\"channel\": " + PythonJson.quote(direct.channel()) + ", \"id\": " + direct.streamId() + "}";
    }
}

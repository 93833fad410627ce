package io.aeronspark.spark.channel;

import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.error.PythonText;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;

/**
 * A parsed channel, {@code [aeron-spy:]aeron:(ipc|udp)[?name=value[|name=value]...]}. Aeron ignores an unknown
 * parameter, and the only symptom is a stream that never connects; so names and values are checked here.
 * <p>
 * A foreign channel was written by another program, such as the channel of a recording: its parameters are not checked.
 * Two channels carry the same Aeron stream if their {@link #identity()} is equal; a comparison of texts is wrong.
 * Immutable.
 */
public final class AeronUri
{
    /** Bytes to which Aeron aligns frames, also the length of a frame's header. */
    public static final int FRAME_ALIGNMENT = 32;

    private static final int MAX_URI_LENGTH = 4095; // bytes, ChannelUri.MAX_URI_LENGTH
    private static final String SPY_PREFIX = "aeron-spy:";
    private static final List<String> MEDIA = List.of("ipc", "udp");
    private static final String EXAMPLE = "Write a channel such as aeron:udp?endpoint=host:40123 or aeron:ipc";
    private static final List<String> POSITION_NAMES = List.of("init-term-id", "term-id", "term-offset");
    private static final int[] ARCHIVE_STREAM_IDS = {10, 20}; // of an archive's local control, by default

    private final String media;
    private final List<Map.Entry<String, String>> params;
    private final boolean isSpy;
    private final boolean isForeign;

    private AeronUri(
        final String media,
        final List<Map.Entry<String, String>> params,
        final boolean isSpy,
        final boolean isForeign)
    {
        this.media = media;
        this.params = List.copyOf(params);
        this.isSpy = isSpy;
        this.isForeign = isForeign;
        if (!isForeign)
        {
            check();
        }
    }

    /** Parse and check a channel. Throws OptionError. */
    public static AeronUri parse(final String text)
    {
        return parse(text, false);
    }

    /** Parse a channel that another program wrote. Throws OptionError only for a text that is not a channel URI. */
    public static AeronUri parseForeign(final String text)
    {
        return parse(text, true);
    }

    private static AeronUri parse(final String text, final boolean isForeign)
    {
        if (text.getBytes(StandardCharsets.UTF_8).length > MAX_URI_LENGTH)
        {
            throw new OptionError(
                "the channel is longer than " + MAX_URI_LENGTH + " bytes, Aeron's limit",
                "Shorten it, for instance its alias");
        }
        final boolean isSpy = text.startsWith(SPY_PREFIX);
        final String uri = isSpy ? text.substring(SPY_PREFIX.length()) : text;
        if (!uri.startsWith("aeron:"))
        {
            throw new OptionError("the channel " + PythonText.repr(text) + " does not begin with 'aeron:'", EXAMPLE);
        }
        final int question = uri.indexOf('?');
        final String media = uri.substring("aeron:".length(), question < 0 ? uri.length() : question);
        if (!MEDIA.contains(media))
        {
            final String close = PythonText.closestMatch(media.toLowerCase(Locale.ROOT), MEDIA);
            throw new OptionError(
                "the channel " + PythonText.repr(text) + " has the unknown medium " + PythonText.repr(media),
                (close == null ? "" : "Did you mean 'aeron:" + close + "'? ") + EXAMPLE);
        }
        return new AeronUri(
            media, question < 0 ? List.of() : split(text, uri.substring(question + 1)), isSpy, isForeign);
    }

    /** The medium, {@code ipc} or {@code udp}. */
    public String media()
    {
        return media;
    }

    /** Whether the channel is that of a spy subscription. */
    public boolean isSpy()
    {
        return isSpy;
    }

    /** Return the value of a parameter, or null. Of a repeated one, return the last value, as Aeron does. */
    public String get(final String name)
    {
        String value = null;
        for (final Map.Entry<String, String> param : params)
        {
            value = param.getKey().equals(name) ? param.getValue() : value;
        }
        return value;
    }

    /** Return this channel with a parameter set; an existing one keeps its position. Throws OptionError as parse. */
    public AeronUri with(final String name, final String value)
    {
        ParameterTable.INSTANCE.check(name, value);
        final Map<String, String> changed = toMap();
        changed.put(name, value);
        return new AeronUri(media, new ArrayList<>(changed.entrySet()), isSpy, isForeign);
    }

    /** Return this channel without a parameter, which it need not have. Throws OptionError as parse. */
    public AeronUri without(final String name)
    {
        final Map<String, String> changed = toMap();
        if (changed.remove(name) == null)
        {
            ParameterTable.INSTANCE.checkName(name);
        }
        return new AeronUri(media, new ArrayList<>(changed.entrySet()), isSpy, isForeign);
    }

    /** The identity of the channel's stream; a spy has the identity of the stream that it receives. */
    public StreamIdentity identity()
    {
        if ("ipc".equals(media))
        {
            return StreamIdentity.IPC;
        }
        final String control = canonical("control", AeronUri::canonicalEndpoint);
        String mode = get("control-mode");
        if (mode == null || mode.isEmpty())
        {
            // Before Aeron 1.43 a control address without a mode meant dynamic; old recordings may have such channels.
            mode = control == null || control.isEmpty() ? null : "dynamic";
        }
        return new StreamIdentity(
            "udp",
            canonical("endpoint", AeronUri::canonicalEndpoint),
            control,
            mode,
            canonical("interface", HostPort::canonicalInterface));
    }

    /**
     * Whether both channels carry the same stream. For dynamic multi-destination-cast, compare the control addresses.
     */
    public boolean isSameStream(final AeronUri other)
    {
        final StreamIdentity one = identity();
        final StreamIdentity two = other.identity();
        if (one.control() != null && "dynamic".equals(one.controlMode()) && "dynamic".equals(two.controlMode()))
        {
            return one.control().equals(two.control());
        }
        return one.equals(two);
    }

    /**
     * Throw OptionError if this stream is a control stream of an archive. Other messages on such a stream would not
     * fail, but slow down the archive without an error.
     */
    public void refuseArchiveStreams(final int streamId)
    {
        for (final int control : ARCHIVE_STREAM_IDS)
        {
            if (streamId == control && StreamIdentity.IPC.equals(identity()))
            {
                throw new OptionError(
                    "stream " + streamId + " of " + this + " is a control stream of an Aeron Archive (aeron:ipc); " +
                    "data there would break the archive",
                    "Choose another streamId, for instance 1001");
            }
        }
    }

    @Override
    public String toString()
    {
        final StringBuilder text = new StringBuilder(isSpy ? SPY_PREFIX : "").append("aeron:").append(media);
        char separator = '?';
        for (final Map.Entry<String, String> param : params)
        {
            text.append(separator).append(param.getKey()).append('=').append(param.getValue());
            separator = '|';
        }
        return text.toString();
    }

    private Map<String, String> toMap()
    {
        final Map<String, String> map = new LinkedHashMap<>();
        params.forEach((param) -> map.put(param.getKey(), param.getValue()));
        return map;
    }

    private static List<Map.Entry<String, String>> split(final String text, final String query)
    {
        final List<Map.Entry<String, String>> params = new ArrayList<>();
        for (final String part : query.split("\\|", -1))
        {
            final int equals = part.indexOf('=');
            if (equals <= 0)
            {
                throw new OptionError(
                    "the channel " + PythonText.repr(text) + " has " + PythonText.repr(part) + ", expected name=value",
                    "Write each parameter as name=value, with one '|' between two of them and none at the end");
            }
            params.add(Map.entry(part.substring(0, equals), part.substring(equals + 1)));
        }
        return params;
    }

    private static String canonicalEndpoint(final String text)
    {
        return HostPort.parse(text).toString();
    }

    private String canonical(final String name, final Function<String, String> canonical)
    {
        final String value = get(name);
        if (value == null)
        {
            return null;
        }
        try
        {
            return canonical.apply(value);
        }
        catch (final IllegalArgumentException ex)
        {
            return value.toLowerCase(Locale.ROOT); // an invalid address of a foreign channel, which equals itself
        }
    }

    private void check()
    {
        final Set<String> seen = new HashSet<>();
        for (final Map.Entry<String, String> param : params)
        {
            ParameterTable.INSTANCE.check(param.getKey(), param.getValue());
            if (!seen.add(param.getKey()))
            {
                throw new OptionError(
                    "the channel " + this + " gives the parameter " + PythonText.repr(param.getKey()) + " twice",
                    "Give it once");
            }
        }
        checkTermPosition();
        if ("udp".equals(media))
        {
            checkAddress("endpoint", AeronUri::canonicalEndpoint);
            checkAddress("control", AeronUri::canonicalEndpoint);
            checkAddress("interface", HostPort::canonicalInterface);
            checkMulticast();
            checkControl();
        }
    }

    private void checkAddress(final String name, final Function<String, String> canonical)
    {
        final String value = get(name);
        try
        {
            if (value != null)
            {
                canonical.apply(value);
            }
        }
        catch (final IllegalArgumentException ex)
        {
            throw new OptionError(name + "=" + value + " of the channel " + this + " " + ex.getMessage(), EXAMPLE);
        }
    }

    private void checkMulticast()
    {
        final String endpoint = get("endpoint");
        final IpAddress address = endpoint == null ? null : IpAddress.of(HostPort.parse(endpoint).host());
        if (address != null && address.isMulticast() && address.isEven())
        {
            throw new OptionError(
                "the multicast address " + address + " of the channel " + this + " is even, expected an odd one: " +
                "Aeron uses the next even address for control",
                "Use " + address.next() + ", or another odd address");
        }
    }

    private void checkControl()
    {
        final String mode = get("control-mode");
        final String control = get("control");
        if (control != null && mode == null)
        {
            throw new OptionError(
                "the channel " + this + " has control= without control-mode=, which Aeron refuses since 1.43",
                "Add |control-mode=dynamic for multi-destination-cast (a subscriber, or a publisher that subscribers " +
                "join), or |control-mode=response for a response channel");
        }
        if ("dynamic".equals(mode) && control == null)
        {
            throw new OptionError(
                "the channel " + this + " has control-mode=dynamic without control=",
                "Add |control=host:port, the address where the publisher listens for its subscribers");
        }
        if (get("endpoint") == null && control == null && mode == null && get("tags") == null)
        {
            throw new OptionError(
                "the channel " + this + " has no address to send to or to listen on", "Add ?endpoint=host:port to it");
        }
    }

    private void checkTermPosition()
    {
        final List<String> missing = POSITION_NAMES.stream().filter((name) -> get(name) == null).toList();
        if (!missing.isEmpty() && missing.size() < POSITION_NAMES.size())
        {
            throw new OptionError(
                "the channel " + this + " gives an initial position without " + String.join(" and ", missing),
                "Give all of " + String.join(", ", POSITION_NAMES) + ", or none of them");
        }
        final long terms = number("term-id") - number("init-term-id");
        if (Math.floorMod(terms, 1L << 32) >= 1L << 31)
        {
            throw new OptionError(
                "the term-id of the channel " + this + " is before its init-term-id",
                "Give the stream's initial term id; term ids count up from it and wrap at 2^31");
        }
        final long offset = number("term-offset");
        final String length = get("term-length");
        final boolean isBeyond = length != null &&
            BigInteger.valueOf(offset).compareTo(ParameterTable.parseSize(length)) > 0;
        if (offset % FRAME_ALIGNMENT != 0 || isBeyond)
        {
            throw new OptionError(
                "term-offset=" + offset + " of the channel " + this + " is not a multiple of " + FRAME_ALIGNMENT +
                " within its term",
                "Use the end position of a frame");
        }
    }

    private long number(final String name)
    {
        final String value = get(name);
        return value == null ? 0 : Long.parseLong(value);
    }
}

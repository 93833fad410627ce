package io.aeronspark.guard;

import io.aeron.ChannelUri;
import java.util.Properties;
import java.util.Set;
import org.agrona.SystemUtil;
import org.agrona.collections.IntHashSet;

/**
 * The rules of a guarded channel. Each rule is a system property {@code aeronspark.guard.NAME} for the whole driver,
 * and a parameter {@code guard-NAME} of the channel, which wins. An endpoint is guarded if its channel has the
 * parameter {@code guard=true} or its port is in the property {@code aeronspark.guard.ports}. See docs/driver-guard.md.
 * <p>
 * Sources are IPv4 addresses or IPv6 /64 networks; introductions are first SETUPs of sessions and first status messages
 * of receivers; lengths are bytes.
 *
 * @param streams             streams that need no registered owner (see {@link OwnerRegistry}); null for all streams.
 * @param termLength          longest term of a session without a registered owner.
 * @param ownedTermLength     longest term of a session with one.
 * @param mtuMin              smallest MTU of a session.
 * @param mtuMax              largest MTU of a session.
 * @param sessions            most sessions of an endpoint; images that the driver has not freed count too.
 * @param sessionsPerSource   most sessions of one source.
 * @param rate                introductions per second of one source.
 * @param burst               introductions of one source that may come at once.
 * @param totalRate           introductions per second of all sources together.
 * @param destinations        most receivers of a sending endpoint.
 * @param destinationsPerSource most receivers of one source.
 * @param joining             whether a receiver may ask for the SETUP of all publications at a control address, with a
 *                            status message of session 0 and stream 0, as a subscription without a session id does.
 * @param networks            networks whose sources are listened to.
 */
public record GuardRules(
    IntHashSet streams,
    int termLength,
    int ownedTermLength,
    int mtuMin,
    int mtuMax,
    int sessions,
    int sessionsPerSource,
    int rate,
    int burst,
    int totalRate,
    int destinations,
    int destinationsPerSource,
    boolean joining,
    NetworkFilter networks)
{
    /** Prefix of the system properties. */
    public static final String PROPERTY_PREFIX = "aeronspark.guard.";
    /** Prefix of the channel parameters. */
    public static final String PARAMETER_PREFIX = "guard-";
    /** Channel parameter that asks for a guard. */
    public static final String PARAMETER = "guard";
    private static final Set<String> NAMES = Set.of(
        "streams", "term-length", "owned-term-length", "mtu-min", "mtu-max", "sessions", "sessions-per-source", "rate",
        "burst", "total-rate", "destinations", "destinations-per-source", "joining", "allow", "deny");

    /**
     * Whether a channel asks for a guard, or its port is one of the guarded ports.
     *
     * @param port local port of the endpoint, 0 if the channel names none.
     * @throws IllegalArgumentException if the parameter is neither true nor false, or the property is not a list of
     *         ports.
     */
    public static boolean isGuarded(final ChannelUri channel, final int port, final Properties properties)
    {
        final String parameter = channel.get(PARAMETER);
        if (null != parameter)
        {
            return flag(PARAMETER, parameter);
        }
        for (final String range : words(properties.getProperty(PROPERTY_PREFIX + "ports")))
        {
            final String[] ends = range.split("-", 2);
            final int first = Integer.parseInt(ends[0]);
            if (first <= port && port <= (ends.length == 1 ? first : Integer.parseInt(ends[1])))
            {
                return true;
            }
        }
        return false;
    }

    /**
     * Read the rules of one channel.
     *
     * @throws IllegalArgumentException for an impossible value or an unknown parameter.
     */
    public static GuardRules of(final ChannelUri channel, final Properties properties)
    {
        channel.forEachParameter((name, value) ->
        {
            if (name.startsWith(PARAMETER_PREFIX) && !NAMES.contains(name.substring(PARAMETER_PREFIX.length())))
            {
                throw new IllegalArgumentException(
                    "unknown parameter " + name + ", expected " + PARAMETER_PREFIX + "NAME with one of " + NAMES);
            }
        });
        final Reader reader = (name, defaultValue) ->
        {
            final String channelValue = channel.get(PARAMETER_PREFIX + name);
            return null != channelValue ? channelValue : properties.getProperty(PROPERTY_PREFIX + name, defaultValue);
        };
        return new GuardRules(
            streams(reader.get("streams", "")),
            reader.size("term-length", "64k"),
            reader.size("owned-term-length", "16m"),
            reader.size("mtu-min", "288"),
            reader.size("mtu-max", "8k"),
            reader.size("sessions", "1000"),
            reader.size("sessions-per-source", "20"),
            reader.size("rate", "20"),
            reader.size("burst", "40"),
            reader.size("total-rate", "1000"),
            reader.size("destinations", "100"),
            reader.size("destinations-per-source", "8"),
            reader.flag("joining"),
            new NetworkFilter(words(reader.get("allow", "")), words(reader.get("deny", ""))));
    }

    /** Whether this stream needs no registered owner. */
    boolean isOpen(final int streamId)
    {
        return null == streams || streams.contains(streamId);
    }

    private static IntHashSet streams(final String list)
    {
        final String[] words = words(list);
        if (0 == words.length)
        {
            return null;
        }
        final IntHashSet streams = new IntHashSet();
        for (final String word : words)
        {
            streams.add(Integer.parseInt(word));
        }
        return streams;
    }

    private static boolean flag(final String name, final String value)
    {
        if (!"true".equals(value) && !"false".equals(value))
        {
            throw new IllegalArgumentException(name + "=" + value + " is invalid, expected true or false");
        }
        return "true".equals(value);
    }

    private static String[] words(final String list)
    {
        return null == list || list.isBlank() ? new String[0] : list.strip().split("\\s*,\\s*");
    }

    /** Reads rules by name, from the channel, the properties or the default. */
    private interface Reader
    {
        String get(String name, String defaultValue);

        default boolean flag(final String name)
        {
            return GuardRules.flag(PARAMETER_PREFIX + name, get(name, "false"));
        }

        default int size(final String name, final String defaultValue)
        {
            final long value = SystemUtil.parseSize(PARAMETER_PREFIX + name, get(name, defaultValue));
            if (value < 1 || value > Integer.MAX_VALUE)
            {
                throw new IllegalArgumentException(
                    PARAMETER_PREFIX + name + "=" + value + " is invalid, expected 1 to " + Integer.MAX_VALUE);
            }
            return (int)value;
        }
    }
}

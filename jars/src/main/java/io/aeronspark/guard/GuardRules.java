package io.aeronspark.guard;

import io.aeron.ChannelUri;
import java.util.Properties;
import java.util.Set;
import org.agrona.SystemUtil;
import org.agrona.collections.IntHashSet;

/**
 * What a guard lets through. Every rule is a system property {@code aeronspark.guard.NAME}, the same for a whole driver, and a parameter
 * {@code guard-NAME} of a guarded channel, which wins for its endpoint. An endpoint is guarded when its channel says {@code guard=true} or
 * when its port is listed in the property {@code aeronspark.guard.ports}.
 *
 * @param streams             on which anybody may speak; null for every stream. All others need a registered owner, see {@link OwnerRegistry}.
 * @param termLength          the longest term, in bytes, of a session without a registered owner.
 * @param ownedTermLength     the longest term, in bytes, of a session with one.
 * @param mtuMin              the smallest MTU of a session, in bytes.
 * @param mtuMax              the largest MTU of a session, in bytes.
 * @param sessions            of one endpoint, those whose images the driver has not freed yet included.
 * @param sessionsPerSource   of one IPv4 address or one IPv6 /64.
 * @param rate                of introductions a second from one IPv4 address or one IPv6 /64.
 * @param burst               of introductions that may come at once.
 * @param totalRate           of introductions a second from all sources together.
 * @param destinations        of one sending endpoint: distinct receivers.
 * @param destinationsPerSource of one IPv4 address or one IPv6 /64.
 * @param joining             whether a receiver may introduce itself by a status message of session 0 and stream 0: it asks for the SETUP
 *                            of every publication at this control address, as a subscription without a session id does.
 * @param networks            whose sources may speak at all.
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
    /** Before the name of each system property. */
    public static final String PROPERTY_PREFIX = "aeronspark.guard.";
    /** Before the name of each parameter of a channel. */
    public static final String PARAMETER_PREFIX = "guard-";
    /** The parameter that asks for a guard. */
    public static final String PARAMETER = "guard";
    private static final Set<String> NAMES = Set.of(
        "streams", "term-length", "owned-term-length", "mtu-min", "mtu-max", "sessions", "sessions-per-source", "rate", "burst",
        "total-rate", "destinations", "destinations-per-source", "joining", "allow", "deny");

    /**
     * Whether a channel asks for a guard, or its port is one of the guarded ports.
     *
     * @throws IllegalArgumentException where the parameter is neither true nor false.
     */
    public static boolean isAsked(final ChannelUri channel, final int port, final Properties properties)
    {
        final String asked = channel.get(PARAMETER);
        if (null != asked)
        {
            return flag(PARAMETER, asked);
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
     * @throws IllegalArgumentException on a value that cannot be, or a parameter that does not exist.
     */
    public static GuardRules of(final ChannelUri channel, final Properties properties)
    {
        channel.forEachParameter((name, value) ->
        {
            if (name.startsWith(PARAMETER_PREFIX) && !NAMES.contains(name.substring(PARAMETER_PREFIX.length())))
            {
                throw new IllegalArgumentException("the guard has no parameter " + name + "; known are, after guard-: " + NAMES);
            }
        });
        final Source source = (name, otherwise) ->
        {
            final String own = channel.get(PARAMETER_PREFIX + name);
            return null != own ? own : properties.getProperty(PROPERTY_PREFIX + name, otherwise);
        };
        return new GuardRules(
            streams(source.get("streams", "")),
            source.size("term-length", "64k"),
            source.size("owned-term-length", "16m"),
            source.size("mtu-min", "288"),
            source.size("mtu-max", "8k"),
            source.size("sessions", "1000"),
            source.size("sessions-per-source", "20"),
            source.size("rate", "20"),
            source.size("burst", "40"),
            source.size("total-rate", "1000"),
            source.size("destinations", "100"),
            source.size("destinations-per-source", "8"),
            source.flag("joining"),
            new NetworkFilter(words(source.get("allow", "")), words(source.get("deny", ""))));
    }

    /** Whether anybody may speak on this stream. */
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
            throw new IllegalArgumentException(name + "=" + value + " is neither true nor false");
        }
        return "true".equals(value);
    }

    private static String[] words(final String list)
    {
        return null == list || list.isBlank() ? new String[0] : list.strip().split("\\s*,\\s*");
    }

    private interface Source
    {
        String get(String name, String otherwise);

        default boolean flag(final String name)
        {
            return GuardRules.flag(PARAMETER_PREFIX + name, get(name, "false"));
        }

        default int size(final String name, final String otherwise)
        {
            final long value = SystemUtil.parseSize(PARAMETER_PREFIX + name, get(name, otherwise));
            if (value < 1 || value > Integer.MAX_VALUE)
            {
                throw new IllegalArgumentException("guard-" + name + "=" + value + " is not from 1 to " + Integer.MAX_VALUE);
            }
            return (int)value;
        }
    }
}

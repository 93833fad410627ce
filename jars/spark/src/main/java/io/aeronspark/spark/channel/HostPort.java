package io.aeronspark.spark.channel;

import io.aeronspark.spark.error.PythonText;

import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A host and a port of an Aeron channel; two spellings of one address ({@code [0::1]}, {@code LOCALHOST}) are equal.
 * No name is resolved.
 */
public record HostPort(String host, int port)
{
    private static final Pattern ENDPOINT =
        Pattern.compile("(?:\\[(?<six>[^\\[\\]]+)\\]|(?<host>[^:\\[\\]]+)):(?<port>[0-9]{1,5})");
    private static final Pattern NAMED = Pattern.compile("(\\{[^{}/]+\\})(?::[0-9]{1,5})?");
    private static final Pattern NAME = Pattern.compile("[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?");

    /**
     * Parse {@code host:port} or {@code [ipv6]:port}.
     *
     * @throws IllegalArgumentException with a phrase such as "has the port 70000".
     */
    public static HostPort parse(final String text)
    {
        final Matcher match = ENDPOINT.matcher(text);
        if (!match.matches())
        {
            throw new IllegalArgumentException("is not host:port, or [address]:port for IPv6");
        }
        final int port = Integer.parseInt(match.group("port"));
        if (port > 65535)
        {
            throw new IllegalArgumentException("has the port " + port + ", above 65535");
        }
        if (match.group("six") == null)
        {
            return new HostPort(canonicalHost(match.group("host")), port);
        }
        final IpAddress address = IpAddress.of(match.group("six"));
        if (address == null || match.group("six").indexOf(':') < 0)
        {
            throw new IllegalArgumentException("has no IPv6 address in its brackets");
        }
        return new HostPort(address.toString(), port);
    }

    @Override
    public String toString()
    {
        return host.indexOf(':') >= 0 ? "[" + host + "]:" + port : host + ":" + port;
    }

    /**
     * Return the canonical spelling of an address or a host name; {@code localhost} becomes 127.0.0.1.
     *
     * @throws IllegalArgumentException with a phrase, for a text that is neither an address nor a name.
     */
    static String canonicalHost(final String text)
    {
        final IpAddress address = IpAddress.of(text);
        if (address != null)
        {
            return address.toString();
        }
        final String name = text.toLowerCase(Locale.ROOT).replaceAll("\\.+\\z", "");
        if ("localhost".equals(name))
        {
            return "127.0.0.1";
        }
        if (name.matches("[0-9.]+"))
        {
            // Java and other drivers read addresses such as 127.1 and 010.0.0.1 differently.
            throw new IllegalArgumentException(
                "has an IPv4 address that is not four numbers of 0 to 255 without leading zeros");
        }
        if (!NAME.matcher(name).matches())
        {
            throw new IllegalArgumentException("has a host that is neither an address nor a name");
        }
        return name;
    }

    /**
     * Return the canonical {@code interface=address[:port][/prefix]} or <code>{name}[:port]</code>, or null for the
     * wildcard. With a prefix the result is the network that Aeron searches. The port does not identify a stream.
     *
     * @throws IllegalArgumentException with a phrase.
     */
    static String canonicalInterface(final String text)
    {
        final Matcher named = NAMED.matcher(text);
        if (named.matches())
        {
            return named.group(1);
        }
        final int slash = text.indexOf('/');
        final String prefix = slash < 0 ? "" : text.substring(slash + 1);
        final String host = canonicalHost(withoutPort(slash < 0 ? text : text.substring(0, slash)));
        final IpAddress address = IpAddress.of(host);
        if (address != null && address.isUnspecified())
        {
            return null;
        }
        if (prefix.isEmpty())
        {
            return host;
        }
        final int bits = prefixOf(prefix, address == null ? 128 : address.bits());
        if (address == null)
        {
            return host + "/" + bits;
        }
        return bits == address.bits() ? host : address.network(bits);
    }

    private static String withoutPort(final String address)
    {
        if (address.startsWith("["))
        {
            final int bracket = address.indexOf(']');
            return bracket < 0 ? address.substring(1) : address.substring(1, bracket);
        }
        final int colon = address.indexOf(':');
        if (colon != address.lastIndexOf(':'))
        {
            throw new IllegalArgumentException("has an IPv6 address without brackets");
        }
        return colon < 0 ? address : address.substring(0, colon);
    }

    private static int prefixOf(final String text, final int longest)
    {
        if (!text.matches("[0-9]{1,3}") || Integer.parseInt(text) > longest)
        {
            throw new IllegalArgumentException(
                "has the prefix length " + PythonText.repr(text) + ", expected 0 to " + longest);
        }
        return Integer.parseInt(text);
    }
}

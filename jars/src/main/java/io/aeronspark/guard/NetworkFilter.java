package io.aeronspark.guard;

import java.net.InetAddress;
import java.net.UnknownHostException;

/**
 * Allow and deny rules for networks. Deny rules win; if there are allow rules, an address must match one of them. A
 * rule never matches an address of the other family; Java turns an IPv4-mapped IPv6 address into the IPv4 address.
 * Immutable.
 */
final class NetworkFilter
{
    private final Network[] allowed;
    private final Network[] denied;

    /**
     * With networks such as {@code 10.0.0.0/8} and {@code 2001:db8::/32}.
     *
     * @throws IllegalArgumentException for a host name or an impossible prefix length.
     */
    NetworkFilter(final String[] allow, final String[] deny)
    {
        allowed = parse(allow);
        denied = parse(deny);
    }

    boolean permits(final InetAddress address)
    {
        if (0 == allowed.length && 0 == denied.length)
        {
            return true;
        }
        final byte[] bytes = address.getAddress();
        return !matchesAny(denied, bytes) && (0 == allowed.length || matchesAny(allowed, bytes));
    }

    /**
     * The source by which limits count: an IPv4 address, or the /64 network of an IPv6 address, because one customer of
     * a provider usually has all addresses of a /64.
     */
    static long sourceOf(final InetAddress address)
    {
        final byte[] bytes = address.getAddress();
        long source = 4 == bytes.length ? 0xFFFF : 0;
        for (int i = 0; i < Math.min(8, bytes.length); i++)
        {
            source = source << 8 | bytes[i] & 0xFF;
        }
        return source;
    }

    private static boolean matchesAny(final Network[] networks, final byte[] address)
    {
        for (final Network network : networks)
        {
            if (network.matches(address))
            {
                return true;
            }
        }
        return false;
    }

    private static Network[] parse(final String[] texts)
    {
        final Network[] networks = new Network[texts.length];
        for (int i = 0; i < texts.length; i++)
        {
            networks[i] = Network.parse(texts[i]);
        }
        return networks;
    }

    private record Network(byte[] prefix, int bits)
    {
        static Network parse(final String text)
        {
            final String[] parts = text.split("/", 2);
            // Only texts that cannot be a host name: InetAddress would look one up in the DNS.
            if (!parts[0].matches("[0-9.]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*"))
            {
                throw new IllegalArgumentException(text + " is not a network such as 10.0.0.0/8 or 2001:db8::/32");
            }
            try
            {
                final byte[] prefix = InetAddress.getByName(parts[0]).getAddress();
                final int bits = 1 == parts.length ? 8 * prefix.length : Integer.parseInt(parts[1]);
                if (bits < 0 || bits > 8 * prefix.length)
                {
                    throw new IllegalArgumentException(text + " has an impossible prefix length");
                }
                return new Network(prefix, bits);
            }
            catch (final UnknownHostException ex)
            {
                throw new IllegalArgumentException(text + " is not a network", ex);
            }
        }

        boolean matches(final byte[] address)
        {
            if (address.length != prefix.length)
            {
                return false;
            }
            int left = bits;
            for (int i = 0; left > 0; i++, left -= 8)
            {
                final int mask = left >= 8 ? 0xFF : 0xFF << 8 - left & 0xFF;
                if (((address[i] ^ prefix[i]) & mask) != 0)
                {
                    return false;
                }
            }
            return true;
        }
    }
}

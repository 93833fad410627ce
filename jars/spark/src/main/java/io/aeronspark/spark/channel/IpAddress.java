package io.aeronspark.spark.channel;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * An IP address as text, without name resolution. Accepts and writes the texts of Python's {@code ipaddress}. IPv4
 * mapped into IPv6 becomes IPv4. Immutable.
 */
final class IpAddress
{
    private static final int HEXTETS = 8;

    private final byte[] bytes;
    private final String scope;

    private IpAddress(final byte[] bytes, final String scope)
    {
        this.bytes = bytes;
        this.scope = scope;
    }

    /** Return the address, or null for another text. */
    static IpAddress of(final String text)
    {
        final byte[] four = parseFour(text);
        return four != null ? new IpAddress(four, "") : parseSix(text);
    }

    int bits()
    {
        return 8 * bytes.length;
    }

    boolean isMulticast()
    {
        return 4 == bytes.length ? (bytes[0] & 0xF0) == 0xE0 : bytes[0] == (byte)0xFF;
    }

    boolean isUnspecified()
    {
        return new BigInteger(bytes).signum() == 0;
    }

    boolean isEven()
    {
        return (bytes[bytes.length - 1] & 1) == 0;
    }

    /** Return the address after this even one. */
    IpAddress next()
    {
        final byte[] next = bytes.clone();
        next[next.length - 1]++;
        return new IpAddress(next, "");
    }

    /** Return the network with this prefix length that has this address. */
    String network(final int prefix)
    {
        final byte[] network = bytes.clone();
        for (int bit = prefix; bit < bits(); bit++)
        {
            network[bit / 8] &= (byte)~(0x80 >> bit % 8);
        }
        return new IpAddress(network, "") + "/" + prefix;
    }

    @Override
    public String toString()
    {
        if (4 == bytes.length)
        {
            return (bytes[0] & 0xFF) + "." + (bytes[1] & 0xFF) + "." + (bytes[2] & 0xFF) + "." + (bytes[3] & 0xFF);
        }
        final String[] hextets = new String[HEXTETS];
        for (int i = 0; i < HEXTETS; i++)
        {
            hextets[i] = Integer.toHexString((bytes[2 * i] & 0xFF) << 8 | bytes[2 * i + 1] & 0xFF);
        }
        return compress(hextets) + (scope.isEmpty() ? "" : "%" + scope);
    }

    /** Write the first of the longest runs of two or more zeros as {@code ::}. */
    private static String compress(final String[] hextets)
    {
        int start = 0;
        int length = 1;
        for (int i = 0; i < HEXTETS; i++)
        {
            int end = i;
            while (end < HEXTETS && "0".equals(hextets[end]))
            {
                end++;
            }
            if (end - i > length)
            {
                start = i;
                length = end - i;
            }
        }
        if (length < 2)
        {
            return String.join(":", hextets);
        }
        final List<String> all = Arrays.asList(hextets);
        return String.join(":", all.subList(0, start)) + "::" + String.join(":", all.subList(start + length, HEXTETS));
    }

    private static byte[] parseFour(final String text)
    {
        final String[] parts = text.split("\\.", -1);
        if (parts.length != 4)
        {
            return null;
        }
        final byte[] four = new byte[4];
        for (int i = 0; i < 4; i++)
        {
            if (!parts[i].matches("0|[1-9][0-9]{0,2}") || Integer.parseInt(parts[i]) > 0xFF)
            {
                return null;
            }
            four[i] = (byte)Integer.parseInt(parts[i]);
        }
        return four;
    }

    private static IpAddress parseSix(final String text)
    {
        final int percent = text.indexOf('%');
        final String scope = percent < 0 ? "" : text.substring(percent + 1);
        if (percent >= 0 && (scope.isEmpty() || scope.indexOf('%') >= 0 || scope.indexOf('/') >= 0))
        {
            return null;
        }
        final List<String> hextets = hextetsOf(percent < 0 ? text : text.substring(0, percent));
        if (hextets == null)
        {
            return null;
        }
        final byte[] bytes = new byte[2 * HEXTETS];
        for (int i = 0; i < HEXTETS; i++)
        {
            final String hextet = hextets.get(i);
            if (!hextet.matches("[0-9A-Fa-f]{1,4}"))
            {
                return null;
            }
            final int value = Integer.parseInt(hextet, 16);
            bytes[2 * i] = (byte)(value >> 8);
            bytes[2 * i + 1] = (byte)value;
        }
        final boolean isMapped = Arrays.equals(bytes, 0, 10, new byte[10], 0, 10) && bytes[10] == -1 && bytes[11] == -1;
        return isMapped ? new IpAddress(Arrays.copyOfRange(bytes, 12, 16), "") : new IpAddress(bytes, scope);
    }

    /** Return the eight parts of an IPv6 address, or null. */
    private static List<String> hextetsOf(final String text)
    {
        final List<String> parts = new ArrayList<>(Arrays.asList(text.split(":", -1)));
        if (parts.size() < 3)
        {
            return null;
        }
        final String last = parts.get(parts.size() - 1);
        if (last.indexOf('.') >= 0)
        {
            final byte[] four = parseFour(last);
            if (four == null)
            {
                return null;
            }
            parts.set(parts.size() - 1, Integer.toHexString((four[0] & 0xFF) << 8 | four[1] & 0xFF));
            parts.add(Integer.toHexString((four[2] & 0xFF) << 8 | four[3] & 0xFF));
        }
        final List<String> inner = parts.subList(1, parts.size() - 1);
        final int skip = inner.indexOf("") + 1;
        if (skip == 0)
        {
            return parts.size() == HEXTETS ? parts : null;
        }
        if (skip != inner.lastIndexOf("") + 1 || parts.size() > HEXTETS + 1)
        {
            return null;
        }
        final List<String> before = new ArrayList<>(parts.subList(0, skip));
        final List<String> after = new ArrayList<>(parts.subList(skip + 1, parts.size()));
        // a text may begin or end with "::", which leaves one empty part more
        if (before.equals(List.of("")))
        {
            before.clear();
        }
        if (after.equals(List.of("")))
        {
            after.clear();
        }
        final int skipped = HEXTETS - before.size() - after.size();
        if (skipped < 1)
        {
            return null;
        }
        before.addAll(Collections.nCopies(skipped, "0"));
        before.addAll(after);
        return before;
    }
}

package io.aeronspark.guard;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.net.InetAddress;
import java.net.UnknownHostException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class NetworkFilterTest
{
    private static final String[] NONE = {};

    private static InetAddress address(final String text) throws UnknownHostException
    {
        return InetAddress.getByName(text);
    }

    private static long sourceOf(final String text) throws UnknownHostException
    {
        return NetworkFilter.sourceOf(address(text));
    }

    @ParameterizedTest
    @CsvSource({
        "10.0.0.0/8, 10.255.0.1, true", "10.0.0.0/8, 11.0.0.1, false",
        "10.1.2.3, 10.1.2.3, true", "10.1.2.3, 10.1.2.4, false",
        "10.0.0.128/25, 10.0.0.129, true", "10.0.0.128/25, 10.0.0.127, false",
        "0.0.0.0/0, 8.8.8.8, true", "0.0.0.0/0, ::1, false",
        "2001:db8::/32, 2001:db8:1::1, true", "2001:db8::/32, 2001:db9::1, false", "::/0, 10.0.0.1, false",
        "10.0.0.0/8, ::ffff:10.0.0.1, true",
    })
    void matchesAddressesOfANetwork(final String network, final String address, final boolean isInside)
        throws UnknownHostException
    {
        assertEquals(isInside, new NetworkFilter(new String[]{network}, NONE).permits(address(address)));
        assertEquals(!isInside, new NetworkFilter(NONE, new String[]{network}).permits(address(address)));
    }

    @Test
    void prefersDenyRulesToAllowRules() throws UnknownHostException
    {
        final NetworkFilter networks = new NetworkFilter(new String[]{"10.0.0.0/8"}, new String[]{"10.9.0.0/16"});
        assertEquals(true, networks.permits(address("10.8.0.1")));
        assertEquals(false, networks.permits(address("10.9.0.1")));
    }

    @ParameterizedTest
    @CsvSource({"localhost", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/x", "example.org/8", "2001:db8::/129"})
    void rejectsTextsThatAreNotNetworksWithoutADnsLookup(final String text)
    {
        assertThrows(IllegalArgumentException.class, () -> new NetworkFilter(new String[]{text}, NONE));
    }

    @Test
    void countsBySingleIpv4AddressAndByIpv6Network() throws UnknownHostException
    {
        assertNotEquals(sourceOf("10.0.0.1"), sourceOf("10.0.0.2"));
        assertEquals(sourceOf("10.0.0.1"), sourceOf("::ffff:10.0.0.1"));
        assertEquals(sourceOf("2001:db8:1:2::1"), sourceOf("2001:db8:1:2:ff::9"));
        assertNotEquals(sourceOf("2001:db8:1:2::1"), sourceOf("2001:db8:1:3::1"));
    }
}

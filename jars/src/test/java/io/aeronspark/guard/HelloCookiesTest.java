package io.aeronspark.guard;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class HelloCookiesTest
{
    private final HelloCookies cookies = new HelloCookies(secret());

    private static byte[] secret()
    {
        final byte[] secret = new byte[32];
        for (int index = 0; index < secret.length; index++)
        {
            secret[index] = (byte)index;
        }
        return secret;
    }

    private static long seconds(final double seconds)
    {
        return (long)(seconds * TimeUnit.SECONDS.toNanos(1));
    }

    private static InetAddress address(final String text)
    {
        try
        {
            return InetAddress.getByName(text);
        }
        catch (final UnknownHostException ex)
        {
            throw new IllegalArgumentException(ex);
        }
    }

    private String make(final String address, final double atSeconds)
    {
        return cookies.make(address(address), Hellos.hello(), 0, seconds(atSeconds));
    }

    private boolean isValid(final String cookie, final String address, final double atSeconds)
    {
        return cookies.isValid(address(address), Hellos.helloWith(cookie), 0, seconds(atSeconds));
    }

    /** The values are those of {@code test_the_guard_makes_the_same_cookies} in Python. */
    @Test
    void makesTheCookiesOfTheServer()
    {
        assertEquals("Ad_NIn8Y9rHLYwcVLQbH_5I", make("10.0.0.1", 90));
        assertEquals("Ath7u1q4Xa3Kc4whSE6tkwg", make("2001:db8::1", 150));
    }

    @Test
    void acceptsACookieOfOneAddressInItsPeriodAndTheNext()
    {
        final String cookie = make("10.0.0.1", 120);
        assertTrue(isValid(cookie, "10.0.0.1", 120));
        assertTrue(isValid(cookie, "10.0.0.1", 239));
        assertFalse(isValid(cookie, "10.0.0.1", 240));
        assertFalse(isValid(cookie, "10.0.0.2", 120));
        assertFalse(isValid(cookie, "::1", 120));
    }

    @Test
    void acceptsTheCookieOfAServerWhoseClockReadsAMomentLater()
    {
        assertTrue(isValid(make("10.0.0.1", 180), "10.0.0.1", 179.999));
    }

    @Test
    void rejectsAHelloWithoutACookieAndOneWithAnyOtherCookie()
    {
        assertFalse(cookies.isValid(address("10.0.0.1"), Hellos.hello(), 0, seconds(120)));
        final String cookie = make("10.0.0.1", 120);
        for (int at = 0; at < cookie.length() - 1; at++)
        {
            final String changed = cookie.substring(0, at) + (cookie.charAt(at) == 'A' ? 'B' : 'A') +
                cookie.substring(at + 1);
            assertNotEquals(cookie, changed);
            assertFalse(isValid(changed, "10.0.0.1", 120), changed);
        }
    }

    @Test
    void rejectsASpentCookieForAsLongAsItWouldBeValid()
    {
        final String cookie = make("10.0.0.1", 120);
        assertTrue(isValid(cookie, "10.0.0.1", 130));
        assertTrue(isValid(cookie, "10.0.0.1", 130)); // not spent
        cookies.spend();
        assertFalse(isValid(cookie, "10.0.0.1", 131));
        assertFalse(isValid(cookie, "10.0.0.1", 200));
        assertTrue(isValid(make("10.0.0.1", 200), "10.0.0.1", 200)); // the next period's
    }

    @Test
    void isForOneHello()
    {
        final var other = Hellos.helloWith(make("10.0.0.1", 120));
        other.putByte(4, (byte)'x'); // the connect key
        assertFalse(cookies.isValid(address("10.0.0.1"), other, 0, seconds(120)));
    }
}

package io.aeronspark.guard;

import static java.nio.ByteOrder.BIG_ENDIAN;

import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.concurrent.TimeUnit;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.agrona.DirectBuffer;
import org.agrona.collections.LongHashSet;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * The cookies of one server: proofs that a sender receives packets at its address. The server makes and verifies the
 * same cookies, with the same secret and the same clock ({@code protocol/handshake_packets.py}):
 * <pre>
 *   cookie  = number of the period modulo 256 (1 byte) | HMAC-SHA256(secret, message)[:16]
 *   message = number of the period (8 bytes, big-endian) | address (16 bytes, IPv4 mapped into IPv6) | HELLO's core
 * </pre>
 * A period is a minute of {@link System#nanoTime()}. A cookie is valid in its period and the next one, for one use.
 * Not thread-safe.
 */
final class HelloCookies
{
    static final long PERIOD_NS = TimeUnit.SECONDS.toNanos(60);
    /** Spent cookies that are remembered for each period. Beyond them, only the limits of rate stop a second use. */
    static final int MAX_SPENT = 65_536;
    private static final String ALGORITHM = "HmacSHA256";
    private static final int MAC_LENGTH = 32;
    private static final int ADDRESS_OFFSET = Long.BYTES;
    private static final int ADDRESS_LENGTH = 16;
    private static final int CORE_OFFSET = ADDRESS_OFFSET + ADDRESS_LENGTH;
    private static final int MAX_CORE_LENGTH = 128;

    private final Mac mac;
    private final byte[] message = new byte[CORE_OFFSET + MAX_CORE_LENGTH];
    private final UnsafeBuffer messageFields = new UnsafeBuffer(message);
    private final byte[] cookie = new byte[HelloPacket.COOKIE_LENGTH];
    private final byte[] shown = new byte[HelloPacket.COOKIE_LENGTH];
    private final byte[] digest = new byte[MAC_LENGTH];
    private LongHashSet spent = new LongHashSet();
    private LongHashSet spentBefore = new LongHashSet();
    private long period = Long.MIN_VALUE;

    HelloCookies(final byte[] secret)
    {
        try
        {
            mac = Mac.getInstance(ALGORITHM);
            mac.init(new SecretKeySpec(secret, ALGORITHM));
        }
        catch (final GeneralSecurityException ex)
        {
            throw new IllegalStateException(ex);
        }
    }

    /** The cookie for the HELLO at {@code offset} from this address, in base64url without padding. */
    String make(final InetAddress address, final DirectBuffer buffer, final int offset, final long nowNs)
    {
        compute(Math.floorDiv(nowNs, PERIOD_NS), address, buffer, offset);
        return new String(Base64.getUrlEncoder().withoutPadding().encode(cookie), StandardCharsets.US_ASCII);
    }

    /** Whether the HELLO at {@code offset} has a valid cookie for this address that was not spent. */
    boolean isValid(final InetAddress address, final DirectBuffer buffer, final int offset, final long nowNs)
    {
        if (!HelloPacket.hasCookie(buffer, offset))
        {
            return false;
        }
        rotate(nowNs);
        buffer.getBytes(offset + HelloPacket.coreLength(buffer, offset) + 1, shown);
        // The server may have read the clock a moment earlier or later.
        for (long number = period + 1; number >= period - 1; number--)
        {
            if ((byte)number == shown[0])
            {
                compute(number, address, buffer, offset);
                return MessageDigest.isEqual(cookie, shown) && !isSpent();
            }
        }
        return false;
    }

    /** Spend the cookie of the last {@link #isValid}, which returned true. */
    void spend()
    {
        if (spent.size() < MAX_SPENT)
        {
            spent.add(macPrefix());
        }
    }

    private boolean isSpent()
    {
        return spent.contains(macPrefix()) || spentBefore.contains(macPrefix());
    }

    /** The first bytes of the MAC, by which a spent cookie is remembered. */
    private long macPrefix()
    {
        return new UnsafeBuffer(shown).getLong(1);
    }

    private void rotate(final long nowNs)
    {
        final long now = Math.floorDiv(nowNs, PERIOD_NS);
        if (now == period)
        {
            return;
        }
        spentBefore = now == period + 1 ? spent : new LongHashSet();
        spent = new LongHashSet();
        period = now;
    }

    private void compute(final long number, final InetAddress address, final DirectBuffer buffer, final int offset)
    {
        final int coreLength = HelloPacket.coreLength(buffer, offset);
        final byte[] bytes = address.getAddress();
        messageFields.putLong(0, number, BIG_ENDIAN);
        messageFields.setMemory(ADDRESS_OFFSET, ADDRESS_LENGTH, (byte)0);
        if (bytes.length < ADDRESS_LENGTH)
        {
            messageFields.putShort(CORE_OFFSET - bytes.length - Short.BYTES, (short)0xFFFF);
        }
        messageFields.putBytes(CORE_OFFSET - bytes.length, bytes);
        buffer.getBytes(offset, message, CORE_OFFSET, coreLength);
        mac.update(message, 0, CORE_OFFSET + coreLength);
        try
        {
            mac.doFinal(digest, 0);
        }
        catch (final GeneralSecurityException ex)
        {
            throw new IllegalStateException(ex);
        }
        cookie[0] = (byte)number;
        System.arraycopy(digest, 0, cookie, 1, cookie.length - 1);
    }
}

package io.aeronspark.guard;

import org.agrona.DirectBuffer;

/**
 * Reads the first packet of a client's handshake, as docs/endpoint-protocol.md defines it. All positions are offsets in
 * the buffer, all lengths are bytes.
 */
final class HelloPacket
{
    /** The kind of a packet. */
    enum Kind
    {
        /** A HELLO of this version. */
        HELLO,
        /** A DONE, which follows a HELLO. Only its length and type are checked. */
        DONE,
        /** A packet of another version of the protocol. */
        OTHER_VERSION,
        /** Anything else. */
        MALFORMED
    }

    /** Length of HELLO and DONE. */
    static final int LENGTH = 1100;
    /** Length of a cookie. */
    static final int COOKIE_LENGTH = 17;
    private static final byte MAGIC_0 = 'A';
    private static final byte MAGIC_1 = 'S';
    private static final byte VERSION = 1;
    private static final int VERSION_OFFSET = 2;
    private static final int TYPE_OFFSET = 3;
    private static final int KEY_OFFSET = 4;
    private static final int MESSAGE_LENGTH_OFFSET = KEY_OFFSET + 16;
    private static final int MESSAGE_OFFSET = MESSAGE_LENGTH_OFFSET + 1;
    private static final byte TYPE_HELLO = 1;
    private static final byte TYPE_DONE = 3;
    private static final int MESSAGE_LENGTH = 32;
    private static final int MESSAGE_LENGTH_WITH_SECRET = 48;

    private HelloPacket()
    {
    }

    /** The kind of the packet of {@code length} bytes at {@code offset}. */
    static Kind kindOf(final DirectBuffer buffer, final int offset, final int length)
    {
        if (length < KEY_OFFSET || length > LENGTH ||
            MAGIC_0 != buffer.getByte(offset) || MAGIC_1 != buffer.getByte(offset + 1))
        {
            return Kind.MALFORMED;
        }
        if (VERSION != buffer.getByte(offset + VERSION_OFFSET))
        {
            return Kind.OTHER_VERSION;
        }
        final byte type = buffer.getByte(offset + TYPE_OFFSET);
        if (LENGTH != length)
        {
            return Kind.MALFORMED;
        }
        if (TYPE_DONE == type)
        {
            return Kind.DONE;
        }
        return TYPE_HELLO == type && isHello(buffer, offset) ? Kind.HELLO : Kind.MALFORMED;
    }

    /** Length of the part that a cookie authenticates: all bytes of a HELLO before the cookie's length. */
    static int coreLength(final DirectBuffer buffer, final int offset)
    {
        return MESSAGE_OFFSET + buffer.getByte(offset + MESSAGE_LENGTH_OFFSET);
    }

    /** Whether the HELLO has a cookie. The byte after the core is the cookie's length, then follows the cookie. */
    static boolean hasCookie(final DirectBuffer buffer, final int offset)
    {
        return 0 != buffer.getByte(offset + coreLength(buffer, offset));
    }

    private static boolean isHello(final DirectBuffer buffer, final int offset)
    {
        final byte messageLength = buffer.getByte(offset + MESSAGE_LENGTH_OFFSET);
        if (isZero(buffer, offset + KEY_OFFSET, offset + MESSAGE_LENGTH_OFFSET) ||
            MESSAGE_LENGTH != messageLength && MESSAGE_LENGTH_WITH_SECRET != messageLength)
        {
            return false;
        }
        final int cookie = offset + coreLength(buffer, offset);
        final byte cookieLength = buffer.getByte(cookie);
        return (0 == cookieLength || COOKIE_LENGTH == cookieLength) &&
            isZero(buffer, cookie + 1 + cookieLength, offset + LENGTH);
    }

    private static boolean isZero(final DirectBuffer buffer, final int begin, final int end)
    {
        int bits = 0;
        for (int at = begin; at < end; at++)
        {
            bits |= buffer.getByte(at);
        }
        return 0 == bits;
    }
}

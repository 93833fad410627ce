package io.aeronspark.guard;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeronspark.guard.HelloPacket.Kind;
import java.util.Random;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.Test;

class HelloPacketTest
{
    private static final String COOKIE = "Ad_NIn8Y9rHLYwcVLQbH_5I";

    private static Kind kindOf(final UnsafeBuffer packet)
    {
        return HelloPacket.kindOf(packet, 0, packet.capacity());
    }

    private static UnsafeBuffer changed(final int offset, final int value)
    {
        final UnsafeBuffer packet = Hellos.helloWith(COOKIE);
        packet.putByte(offset, (byte)value);
        return packet;
    }

    @Test
    void knowsAHelloWithAndWithoutACookie()
    {
        assertEquals(Kind.HELLO, kindOf(Hellos.hello()));
        assertEquals(Kind.HELLO, kindOf(Hellos.helloWith(COOKIE)));
        assertFalse(HelloPacket.hasCookie(Hellos.hello(), 0));
        assertTrue(HelloPacket.hasCookie(Hellos.helloWith(COOKIE), 0));
        assertEquals(53, HelloPacket.coreLength(Hellos.hello(), 0));
    }

    @Test
    void knowsOtherPackets()
    {
        assertEquals(Kind.OTHER_VERSION, kindOf(changed(2, 2)));
        assertEquals(Kind.DONE, kindOf(changed(3, 3)));
        assertEquals(Kind.MALFORMED, kindOf(changed(0, 'B')));
        assertEquals(Kind.MALFORMED, kindOf(changed(3, 2)));
        assertEquals(Kind.MALFORMED, kindOf(changed(20, 33))); // length of the Noise message
        assertEquals(Kind.MALFORMED, kindOf(changed(20, -1)));
        assertEquals(Kind.MALFORMED, kindOf(changed(53, 16))); // length of the cookie
        assertEquals(Kind.MALFORMED, kindOf(changed(1099, 1))); // padding
        final UnsafeBuffer withoutKey = Hellos.hello();
        withoutKey.setMemory(4, 16, (byte)0);
        assertEquals(Kind.MALFORMED, kindOf(withoutKey));
    }

    @Test
    void readsOnlyThePacketItself()
    {
        for (int length = 0; length < HelloPacket.LENGTH; length++)
        {
            final UnsafeBuffer packet = new UnsafeBuffer(Hellos.hello(), 0, length);
            assertEquals(Kind.MALFORMED, kindOf(packet), "length " + length);
        }
        final Random random = new Random(1);
        for (int count = 0; count < 2_000; count++)
        {
            final byte[] bytes = new byte[HelloPacket.LENGTH];
            random.nextBytes(bytes);
            Hellos.hello().getBytes(0, bytes, 0, 4 + random.nextInt(60));
            final UnsafeBuffer packet = new UnsafeBuffer(bytes);
            assertEquals(Kind.MALFORMED, kindOf(packet));
        }
    }
}

package io.aeronspark.guard;

import static java.nio.ByteOrder.LITTLE_ENDIAN;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeron.protocol.HeaderFlyweight;
import java.util.Random;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.Test;

class FrameValidatorTest
{
    private static final int DATA = HeaderFlyweight.HDR_TYPE_DATA;
    private static final int PAD = HeaderFlyweight.HDR_TYPE_PAD;
    private final UnsafeBuffer packet = new UnsafeBuffer(new byte[2048]);

    private int frame(final int at, final int frameLength, final int type, final int termOffset)
    {
        packet.putInt(at, frameLength, LITTLE_ENDIAN);
        packet.putByte(at + 4, (byte)0);
        packet.putByte(at + 5, (byte)0xC0);
        packet.putShort(at + 6, (short)type, LITTLE_ENDIAN);
        packet.putInt(at + 8, termOffset, LITTLE_ENDIAN);
        packet.putInt(at + 12, 5, LITTLE_ENDIAN);
        packet.putInt(at + 16, 1001, LITTLE_ENDIAN);
        packet.putInt(at + 20, 7, LITTLE_ENDIAN);
        return at + (frameLength + 31) / 32 * 32;
    }

    @Test
    void acceptsAPacketOfSeveralFramesThatFollowEachOther()
    {
        final int length = frame(frame(0, 40, DATA, 64), 33, DATA, 128);
        assertEquals(192, FrameValidator.dataEnd(packet, length));
        assertTrue(FrameValidator.isForReceiver(packet, length));
        assertFalse(FrameValidator.isForSender(packet, length));
    }

    @Test
    void rejectsFramesThatContradictTheFirst()
    {
        for (final int field : new int[]{8, 12, 16, 20, 4})
        {
            final int length = frame(frame(0, 40, DATA, 64), 33, DATA, 128);
            packet.putByte(64 + field, (byte)(packet.getByte(64 + field) + 1));
            assertEquals(FrameValidator.INVALID, FrameValidator.dataEnd(packet, length), "field at " + field);
        }
    }

    @Test
    void acceptsPaddingOfAnyLengthButOnlyAsTheLastFrame()
    {
        final int at = frame(0, 40, DATA, 64);
        frame(at, 8192, PAD, 128);
        assertEquals(128 + 8192, FrameValidator.dataEnd(packet, at + 32));
        frame(at + 32, 40, DATA, 160);
        assertEquals(FrameValidator.INVALID, FrameValidator.dataEnd(packet, at + 96));
    }

    @Test
    void acceptsAHeartbeatAndReturnsItsTermOffset()
    {
        frame(0, 0, DATA, 96);
        assertEquals(96, FrameValidator.dataEnd(packet, 32));
        frame(0, 0, PAD, 96);
        assertEquals(FrameValidator.INVALID, FrameValidator.dataEnd(packet, 32));
    }

    @Test
    void rejectsImpossibleLengthsAndOffsets()
    {
        final int[][] wrong = {
            {31, 0, 32}, {-1, 0, 32}, {Integer.MAX_VALUE, 0, 32}, {Integer.MIN_VALUE, 0, 32},
            {40, -32, 64}, {40, 8, 64},
            {40, 0, 48}, {40, 0, 31}, {128, 0, 64}, {40, Integer.MAX_VALUE - 31, 64}, {0, 0, 64},
        };
        for (final int[] one : wrong)
        {
            frame(0, one[0], DATA, one[1]);
            final int end = FrameValidator.dataEnd(packet, one[2]);
            assertEquals(FrameValidator.INVALID, end, one[0] + " at " + one[1] + " in " + one[2]);
        }
    }

    @Test
    void rejectsOtherFramesThatAreNotWhole()
    {
        final int[][] receivable = {{HeaderFlyweight.HDR_TYPE_SETUP, 40}, {HeaderFlyweight.HDR_TYPE_RTTM, 40}};
        for (final int[] one : receivable)
        {
            frame(0, one[1], one[0], 0);
            assertTrue(FrameValidator.isForReceiver(packet, one[1]));
            assertFalse(FrameValidator.isForReceiver(packet, one[1] - 1));
            frame(0, one[1] + 1, one[0], 0);
            assertFalse(FrameValidator.isForReceiver(packet, one[1] + 1));
            packet.putByte(4, (byte)1); // another version of the protocol
            assertFalse(FrameValidator.isForReceiver(packet, one[1]));
        }
        final int[][] control = {
            {HeaderFlyweight.HDR_TYPE_SM, 36}, {HeaderFlyweight.HDR_TYPE_SM, 44}, {HeaderFlyweight.HDR_TYPE_NAK, 28},
        };
        for (final int[] one : control)
        {
            frame(0, one[1], one[0], 0);
            assertTrue(FrameValidator.isForSender(packet, one[1]));
            assertFalse(FrameValidator.isForSender(packet, one[1] - 1));
            assertFalse(FrameValidator.isForReceiver(packet, one[1]));
        }
    }

    @Test
    void readsNothingBeyondARandomDatagram()
    {
        final Random random = new Random(1);
        for (int round = 0; round < 20_000; round++)
        {
            final byte[] bytes = new byte[random.nextInt(160)];
            random.nextBytes(bytes);
            if (bytes.length > 8)
            {
                bytes[4] = 0;
                bytes[6] = (byte)random.nextInt(8);
                bytes[7] = 0;
                bytes[2] = bytes[3] = 0;
                bytes[1] = 0;
            }
            final UnsafeBuffer exact = new UnsafeBuffer(bytes); // Agrona checks its bounds
            FrameValidator.isForReceiver(exact, bytes.length);
            FrameValidator.isForSender(exact, bytes.length);
        }
    }
}

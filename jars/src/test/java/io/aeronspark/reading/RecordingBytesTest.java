package io.aeronspark.reading;

import static io.aeronspark.reading.RecordedFrames.WHOLE;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.aeron.protocol.HeaderFlyweight;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.agrona.DirectBuffer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class RecordingBytesTest
{
    private final RecordedFrames log = new RecordedFrames();

    /** Counts the frames that it is given. */
    private static final class Counting extends FrameScanner
    {
        int frames;
        int paddings;

        Counting()
        {
            super(0, 1 << 16);
        }

        @Override
        void onFrame(final DirectBuffer buffer, final int offset, final int payloadLength, final byte flags, final long position)
        {
            frames++;
        }

        @Override
        void onPadding(final long position, final long end)
        {
            paddings++;
        }
    }

    private final Counting counting = new Counting();

    @Test
    void everyFlippedBitOfAPayloadOrItsChecksumIsNoticed()
    {
        final int at = (int)log.data(WHOLE, "payload");
        for (int bit = 8 * 12; bit < 8 * 64; bit++)
        {
            if (bit >= 8 * 16 && bit < 8 * 32)
            {
                continue; // the rest of the header is not the checksum's
            }
            final int index = at + bit / 8;
            log.buffer.putByte(index, (byte)(log.buffer.getByte(index) ^ 1 << bit % 8));
            final String said = assertThrows(IllegalStateException.class, () -> log.scan(counting, 1024, Long.MAX_VALUE)).getMessage();
            assertEquals("CRC checksum mismatch at position=0", said);
            log.buffer.putByte(index, (byte)(log.buffer.getByte(index) ^ 1 << bit % 8));
        }
        assertEquals(64, log.scan(counting, 1024, Long.MAX_VALUE));
        assertEquals(1, counting.frames);
    }

    @Test
    void aFrameThatDoesNotFitTheRoomWaitsAndPaddingNeedsNone()
    {
        log.data(WHOLE, "x".repeat(100));
        log.padding(1 << 12);
        log.data(WHOLE, "y");
        assertEquals(0, log.scan(counting, 128, Long.MAX_VALUE));
        assertEquals(160 + (1 << 12), log.scan(counting, 192, Long.MAX_VALUE));
        assertEquals(1, counting.paddings);
        assertEquals(64, log.scan(counting, 64, Long.MAX_VALUE));
        assertEquals(2, counting.frames);
    }

    @Test
    void aFrameThatIsNotWholeYetIsNotRead()
    {
        log.data(WHOLE, "a");
        log.data(WHOLE, "b".repeat(100));
        log.end -= 32;
        assertEquals(64, log.scan(counting, 1024, Long.MAX_VALUE));
        assertEquals(64, log.position());
        log.end += 32;
        assertEquals(160, log.scan(counting, 1024, Long.MAX_VALUE));
    }

    @Test
    void lengthsThatCannotBeEndTheWalk()
    {
        for (final int length : new int[]{0, 31, -1, Integer.MIN_VALUE, Integer.MAX_VALUE, 1 << 20})
        {
            final RecordedFrames one = new RecordedFrames();
            one.data(WHOLE, "a");
            final int at = (int)one.data(WHOLE, "b");
            one.buffer.putInt(at, length);
            assertEquals(64, one.scan(counting, 1 << 16, Long.MAX_VALUE), () -> "length " + length);
            assertEquals(64, one.walk(counting), () -> "length " + length);
        }
    }

    @Test
    void paddingThatEndsBeyondABlockIsWalkedToTheBlocksEnd()
    {
        log.padding(1 << 12);
        assertEquals(64, counting.scan(log.buffer, 0, 64, 0));
        assertEquals(1, counting.paddings);
        assertEquals(HeaderFlyweight.HDR_TYPE_PAD, log.buffer.getShort(6));
    }

    @Test
    void aSegmentFileIsReadInPlace(@TempDir final Path folder) throws IOException
    {
        log.data(WHOLE, "a");
        final long second = log.data(WHOLE, "b");
        final byte[] bytes = new byte[(int)log.end()];
        log.buffer.getBytes(0, bytes);
        final Path file = Files.write(folder.resolve("0-65536.rec"), bytes);
        try (SegmentFile segment = new SegmentFile(file.toString(), 65536, 65536 + second))
        {
            assertEquals(65536 + second, segment.position());
            assertEquals(65536 + log.end(), segment.end());
            assertEquals(64, segment.scan(counting, 1024, Long.MAX_VALUE));
            assertEquals(segment.end(), segment.position());
        }
    }

    @Test
    void receivedBytesAreReadAsTheyCome()
    {
        final ReceivedBytes received = new ReceivedBytes(1024, 65536);
        log.data(WHOLE, "a");
        final byte[] bytes = new byte[64];
        log.buffer.getBytes(0, bytes);
        final int at = received.next();
        received.memory().put(at, bytes, 0, 40);
        received.added(40);
        assertEquals(0, received.scan(counting, 1024, Long.MAX_VALUE));
        received.memory().put(received.next(), bytes, 40, 24);
        received.added(24);
        assertEquals(65536 + 64, received.end());
        assertEquals(64, received.scan(counting, 1024, Long.MAX_VALUE));
        assertEquals(1, counting.frames);
    }
}

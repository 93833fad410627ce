package io.aeronspark.reading;

import static io.aeronspark.reading.RecordedFrames.UNFRAGMENTED;
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
    private final RecordedFrames frames = new RecordedFrames();

    /** Counts frames. */
    private static final class Counting extends FrameScanner
    {
        int frames;
        int paddings;

        Counting()
        {
            super(0, 1 << 16);
        }

        @Override
        void onFrame(
            final DirectBuffer buffer, final int offset, final int payloadLength, final byte flags, final long position)
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
    void detectsEveryFlippedBitOfAPayloadAndItsChecksum()
    {
        final int at = (int)frames.appendData(UNFRAGMENTED, "payload");
        for (int bit = 8 * 12; bit < 8 * 64; bit++)
        {
            if (bit >= 8 * 16 && bit < 8 * 32)
            {
                continue; // the checksum does not cover the rest of the header
            }
            final int index = at + bit / 8;
            frames.buffer.putByte(index, (byte)(frames.buffer.getByte(index) ^ 1 << bit % 8));
            final IllegalStateException error =
                assertThrows(IllegalStateException.class, () -> frames.scan(counting, 1024, Long.MAX_VALUE));
            assertEquals("CRC checksum mismatch at position=0", error.getMessage());
            frames.buffer.putByte(index, (byte)(frames.buffer.getByte(index) ^ 1 << bit % 8));
        }
        assertEquals(64, frames.scan(counting, 1024, Long.MAX_VALUE));
        assertEquals(1, counting.frames);
    }

    @Test
    void leavesAFrameThatIsLongerThanTheRoomAndSkipsPaddingOfAnyLength()
    {
        frames.appendData(UNFRAGMENTED, "x".repeat(100));
        frames.appendPadding(1 << 12);
        frames.appendData(UNFRAGMENTED, "y");
        assertEquals(0, frames.scan(counting, 128, Long.MAX_VALUE));
        assertEquals(160 + (1 << 12), frames.scan(counting, 192, Long.MAX_VALUE));
        assertEquals(1, counting.paddings);
        assertEquals(64, frames.scan(counting, 64, Long.MAX_VALUE));
        assertEquals(2, counting.frames);
    }

    @Test
    void leavesAnIncompleteFrame()
    {
        frames.appendData(UNFRAGMENTED, "a");
        frames.appendData(UNFRAGMENTED, "b".repeat(100));
        frames.end -= 32;
        assertEquals(64, frames.scan(counting, 1024, Long.MAX_VALUE));
        assertEquals(64, frames.position());
        frames.end += 32;
        assertEquals(160, frames.scan(counting, 1024, Long.MAX_VALUE));
    }

    @Test
    void stopsAtImpossibleLengths()
    {
        for (final int length : new int[]{0, 31, -1, Integer.MIN_VALUE, Integer.MAX_VALUE, 1 << 20})
        {
            final RecordedFrames one = new RecordedFrames();
            one.appendData(UNFRAGMENTED, "a");
            final int at = (int)one.appendData(UNFRAGMENTED, "b");
            one.buffer.putInt(at, length);
            assertEquals(64, one.scan(counting, 1 << 16, Long.MAX_VALUE), () -> "length " + length);
            assertEquals(64, one.walkAll(counting), () -> "length " + length);
        }
    }

    @Test
    void walksPaddingThatEndsBehindTheBlockToTheEndOfTheBlock()
    {
        frames.appendPadding(1 << 12);
        assertEquals(64, counting.scan(frames.buffer, 0, 64, 0));
        assertEquals(1, counting.paddings);
        assertEquals(HeaderFlyweight.HDR_TYPE_PAD, frames.buffer.getShort(6));
    }

    @Test
    void readsASegmentFileInPlace(@TempDir final Path folder) throws IOException
    {
        frames.appendData(UNFRAGMENTED, "a");
        final long second = frames.appendData(UNFRAGMENTED, "b");
        final byte[] bytes = new byte[(int)frames.end()];
        frames.buffer.getBytes(0, bytes);
        final Path file = Files.write(folder.resolve("0-65536.rec"), bytes);
        try (SegmentFile segment = new SegmentFile(file.toString(), 65536, 65536 + second))
        {
            assertEquals(65536 + second, segment.position());
            assertEquals(65536 + frames.end(), segment.end());
            assertEquals(64, segment.scan(counting, 1024, Long.MAX_VALUE));
            assertEquals(segment.end(), segment.position());
        }
    }

    @Test
    void readsAFrameThatCameInTwoParts()
    {
        final ReceivedBytes received = new ReceivedBytes(1024, 65536);
        frames.appendData(UNFRAGMENTED, "a");
        final byte[] bytes = new byte[64];
        frames.buffer.getBytes(0, bytes);
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

    @Test
    void skipsReceivedPaddingThatIsLongerThanTheMemory()
    {
        final ReceivedBytes received = new ReceivedBytes(64, 0);
        frames.appendPadding(1 << 20);
        final byte[] header = new byte[32];
        frames.buffer.getBytes(0, header);
        received.memory().put(received.next(), header, 0, 32);
        received.added(32);
        assertEquals(1 << 20, received.position());
        assertEquals(0, received.next());
    }

    @Test
    void refusesAPartThatIsLongerThanTheMemory()
    {
        final ReceivedBytes received = new ReceivedBytes(1024, 0);
        final int room = received.memory().capacity() - received.next();
        assertThrows(IllegalArgumentException.class, () -> received.added(room + 1));
        assertThrows(IllegalArgumentException.class, () -> received.added(-1));
    }

    @Test
    void refusesToCollectMoreBytesThanAFrameCanHave()
    {
        final ReceivedBytes received = new ReceivedBytes(1 << 20, 0);
        received.memory().putInt(0, 0);
        received.added(1 << 18);
        assertThrows(IllegalStateException.class, received::next);
    }
}

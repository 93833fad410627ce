package io.aeronspark.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeron.LogBufferOnDisk;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Arrays;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ImageReaderTest
{
    private static final int LIMIT = 4_000; // three fragments at an MTU of 1,408 bytes

    @TempDir
    Path folder;
    private LogBufferOnDisk log;

    @BeforeEach
    void open() throws IOException
    {
        log = new LogBufferOnDisk(folder);
    }

    @AfterEach
    void close()
    {
        log.close();
    }

    private byte[] publish(final int length, final int value)
    {
        final byte[] message = new byte[length];
        Arrays.fill(message, (byte)value);
        assertTrue(log.publication.offer(new UnsafeBuffer(message), 0, length) > 0);
        return message;
    }

    @Test
    void returnsEachMessageOnce()
    {
        final ImageReader reader = new ImageReader(log.image, LIMIT);
        final byte[] small = publish(10, 1);
        final byte[] large = publish(LIMIT, 2);
        final byte[][] found = reader.poll(10);
        assertEquals(2, found.length);
        assertArrayEquals(small, found[0]);
        assertArrayEquals(large, found[1]);
        assertEquals(0, reader.poll(10).length);
    }

    @Test
    void joinsFragmentsOfSeveralPolls()
    {
        final ImageReader reader = new ImageReader(log.image, LIMIT);
        final byte[] message = publish(LIMIT, 3);
        assertEquals(0, reader.poll(1).length);
        assertEquals(0, reader.poll(1).length);
        assertArrayEquals(message, reader.poll(1)[0]);
    }

    @Test
    void returnsNullForAMessageAboveTheLimitAndReadsTheNextOne()
    {
        final ImageReader reader = new ImageReader(log.image, LIMIT);
        publish(LIMIT + 1, 4);
        final byte[] next = publish(20, 5);
        final byte[][] found = reader.poll(10);
        assertEquals(2, found.length);
        assertNull(found[0]);
        assertArrayEquals(next, found[1]);
    }

    @Test
    void ignoresTheRestOfAMessageWhoseBeginIsMissing()
    {
        publish(LIMIT, 6);
        new ImageReader(log.image, LIMIT).poll(1);
        final ImageReader reader = new ImageReader(log.image, LIMIT);
        final byte[] next = publish(20, 7);
        final byte[][] found = reader.poll(10);
        assertEquals(1, found.length);
        assertArrayEquals(next, found[0]);
    }
}

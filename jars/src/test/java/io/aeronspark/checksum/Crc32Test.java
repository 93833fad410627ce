package io.aeronspark.checksum;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.aeronspark.reading.ArrowColumns;
import java.util.Random;
import java.util.zip.CRC32;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.Test;

class Crc32Test
{
    @Test
    void equalsZlibsChecksumInOneCallAndInTwo()
    {
        final Random random = new Random(1);
        for (int length = 0; length < 300; length++)
        {
            final byte[] bytes = new byte[length];
            random.nextBytes(bytes);
            final UnsafeBuffer memory = ArrowColumns.direct(length);
            memory.putBytes(0, bytes);
            final CRC32 expected = new CRC32();
            expected.update(bytes);
            assertEquals((int)expected.getValue(), Crc32.update(0, memory.addressOffset(), length));
            final int first = length / 3;
            final int half = Crc32.update(0, memory.addressOffset(), first);
            assertEquals((int)expected.getValue(), Crc32.update(half, memory.addressOffset() + first, length - first));
        }
    }

    @Test
    void computesThePublishedCheckValue()
    {
        final UnsafeBuffer memory = ArrowColumns.direct(16);
        memory.putBytes(0, "123456789".getBytes());
        assertEquals(0xCBF43926, Crc32.update(0, memory.addressOffset(), 9));
    }
}

package io.aeronspark.writing;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeron.ExclusivePublication;
import io.aeron.LogBufferOnDisk;
import io.aeronspark.reading.ArrowColumns;
import io.aeronspark.reading.RowAssembler;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

class BatchOfferTest
{
    @TempDir
    Path folder;
    private LogBufferOnDisk log;
    private BatchOffer offer;

    @BeforeEach
    void open() throws IOException
    {
        log = new LogBufferOnDisk(folder);
        offer = new BatchOffer(log.publication);
    }

    @AfterEach
    void close()
    {
        log.close();
    }

    private int offerAll(final ArrowColumns memory, final int first, final int last, final boolean withReserved)
    {
        return offer.offerValues(
            memory.values.addressOffset(),
            memory.offsets.addressOffset(),
            withReserved ? memory.reserved.addressOffset() : 0,
            first,
            last,
            0);
    }

    @Test
    void offersValuesWithTheirReservedValues()
    {
        final ArrowColumns given = ArrowColumns.of("one", "", "three");
        assertEquals(3, offerAll(given, 0, 3, true));
        assertEquals(64 + 32 + 64, offer.result());
        final ArrowColumns taken = new ArrowColumns(1024, 8);
        final RowAssembler assembler = new RowAssembler(LogBufferOnDisk.INITIAL_TERM_ID, LogBufferOnDisk.TERM_LENGTH);
        taken.beginBatch(assembler);
        assertFalse(assembler.drain(log.image, offer.result()));
        assertEquals(List.of("one", "", "three"), taken.rows(assembler));
        for (int row = 0; row < 3; row++)
        {
            assertEquals(1000 + row, taken.reserved.getLong(8 * row));
        }
        assertEquals(0, taken.positions.getLong(0));
        assertEquals(64, taken.positions.getLong(8));
        assertEquals(96, taken.positions.getLong(16));
    }

    @Test
    void offersAPartOfAColumnWithoutReservedValues()
    {
        assertEquals(1, offerAll(ArrowColumns.of("one", "two", "three"), 1, 2, false));
        final ArrowColumns taken = new ArrowColumns(1024, 8);
        final RowAssembler assembler = new RowAssembler(LogBufferOnDisk.INITIAL_TERM_ID, LogBufferOnDisk.TERM_LENGTH);
        taken.beginBatch(assembler);
        assembler.drain(log.image, offer.result());
        assertEquals(List.of("two"), taken.rows(assembler));
        assertEquals(0, taken.reserved.getLong(0));
    }

    @Test
    void returnsHowManyMessagesWereTakenUnderBackPressureAndContinues()
    {
        final ArrowColumns given = ArrowColumns.of("one", "two", "three");
        log.limit.set(1); // Aeron compares the limit with the position before the message, so one is taken
        assertEquals(1, offerAll(given, 0, 3, true));
        assertEquals(ExclusivePublication.BACK_PRESSURED, offer.result());
        log.limit.set(LogBufferOnDisk.TERM_LENGTH);
        assertEquals(2, offerAll(given, 1, 3, true));
        assertEquals(192, offer.result());
    }

    @Test
    void returnsAtOnceWithoutASubscriberWhateverTheTimeout()
    {
        log.connected(false);
        log.limit.set(0);
        final ArrowColumns given = ArrowColumns.of("one");
        final long begin = System.nanoTime();
        assertEquals(0, offer.offerValues(
            given.values.addressOffset(), given.offsets.addressOffset(), 0, 0, 1, 60_000_000_000L));
        assertTrue(System.nanoTime() - begin < 30_000_000_000L);
        assertEquals(ExclusivePublication.NOT_CONNECTED, offer.result());
    }

    @Test
    @Timeout(60)
    void aWaitForRoomCanBeEndedByAnotherThread() throws InterruptedException
    {
        log.limit.set(0);
        final ArrowColumns given = ArrowColumns.of("one");
        final int[] taken = {-1, -1};
        final Thread sender = new Thread(() ->
        {
            for (int i = 0; i < taken.length; i++)
            {
                taken[i] = offer.offerValues(
                    given.values.addressOffset(), given.offsets.addressOffset(), 0, 0, 1, TimeUnit.HOURS.toNanos(1));
            }
        });
        sender.start();
        while (LockSupport.getBlocker(sender) != offer)
        {
            Thread.onSpinWait();
        }
        offer.stopWaiting();
        sender.join();
        assertArrayEquals(new int[]{0, 0}, taken);
        assertEquals(ExclusivePublication.BACK_PRESSURED, offer.result());
        log.limit.set(LogBufferOnDisk.TERM_LENGTH);
        assertEquals(1, offerAll(given, 0, 1, false), "with room, a message is still taken");
    }

    @Test
    @Timeout(60)
    void anOfferDoesNotOutlastItsTimeoutAfterALongWait()
    {
        log.limit.set(0);
        final ArrowColumns given = ArrowColumns.of("one");
        final long address = given.values.addressOffset();
        final long offsets = given.offsets.addressOffset();
        assertEquals(0, offer.offerValues(address, offsets, 0, 0, 1, TimeUnit.MILLISECONDS.toNanos(200)));
        long shortest = Long.MAX_VALUE; // the scheduler may delay some of them
        for (int i = 0; i < 20; i++)
        {
            final long begin = System.nanoTime();
            assertEquals(0, offer.offerValues(address, offsets, 0, 0, 1, TimeUnit.MILLISECONDS.toNanos(1)));
            shortest = Math.min(shortest, System.nanoTime() - begin);
        }
        assertTrue(shortest < TimeUnit.MILLISECONDS.toNanos(20), "parks of later calls end at the timeout");
    }

    @Test
    void offersOneMessageMadeOfHeaderAndPayload()
    {
        final UnsafeBuffer header = ArrowColumns.direct(8);
        header.putBytes(0, "header: ".getBytes());
        final ArrowColumns payload = ArrowColumns.of("payload");
        assertTrue(offer.offerGathered(header.addressOffset(), 8, payload.values.addressOffset(), 7, 42, 0));
        final ArrowColumns taken = new ArrowColumns(1024, 8);
        final RowAssembler assembler = new RowAssembler(LogBufferOnDisk.INITIAL_TERM_ID, LogBufferOnDisk.TERM_LENGTH);
        taken.beginBatch(assembler);
        assembler.drain(log.image, offer.result());
        assertEquals(List.of("header: payload"), taken.rows(assembler));
        assertEquals(42, taken.reserved.getLong(0));
    }

    @Test
    void retriesAnOfferBehindThePaddingAtTheEndOfATerm()
    {
        final ArrowColumns large = ArrowColumns.of("x".repeat(1300));
        int count = 0;
        log.limit.set(10L * LogBufferOnDisk.TERM_LENGTH);
        while (offer.result() < LogBufferOnDisk.TERM_LENGTH)
        {
            assertEquals(1, offerAll(large, 0, 1, false));
            count++;
        }
        assertEquals(49, count); // 48 messages of 1,344 bytes fit a term of 64 KiB
        assertEquals(LogBufferOnDisk.TERM_LENGTH + 1344, offer.result());
    }
}

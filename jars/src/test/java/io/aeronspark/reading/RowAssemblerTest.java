package io.aeronspark.reading;

import static io.aeronspark.reading.RecordedFrames.BEGIN;
import static io.aeronspark.reading.RecordedFrames.END;
import static io.aeronspark.reading.RecordedFrames.MIDDLE;
import static io.aeronspark.reading.RecordedFrames.UNFRAGMENTED;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

class RowAssemblerTest
{
    private static final int TERM = 1 << 16;
    private final RecordedFrames frames = new RecordedFrames();
    private final RowAssembler assembler = new RowAssembler(0, TERM);

    @Test
    void assemblesFragmentsIntoOneRowAtThePositionOfTheFirst()
    {
        frames.appendData(UNFRAGMENTED, "a");
        frames.appendData(BEGIN, "b");
        frames.appendData(MIDDLE, "c");
        frames.appendData(END, "d");
        frames.appendPadding(64);
        frames.appendData(UNFRAGMENTED, "e");
        final ArrowColumns memory = new ArrowColumns(1024, 8);
        memory.beginBatch(assembler);
        assertFalse(assembler.drain(frames, Long.MAX_VALUE));
        assertEquals(List.of("a", "bcd", "e"), memory.rows(assembler));
        assertEquals(64, memory.positions.getLong(8));
    }

    @Test
    void leavesOutFragmentsOfIncompleteMessages()
    {
        frames.appendData(END, "the rest of a message that began before");
        frames.appendData(BEGIN, "its publisher died");
        frames.appendData(UNFRAGMENTED, "a");
        final ArrowColumns memory = new ArrowColumns(1024, 8);
        memory.beginBatch(assembler);
        assembler.drain(frames, Long.MAX_VALUE);
        assertEquals(List.of("a"), memory.rows(assembler));
    }

    @Test
    void stopsAtTheLimit()
    {
        frames.appendData(UNFRAGMENTED, "a");
        final long second = frames.appendData(UNFRAGMENTED, "b");
        final ArrowColumns memory = new ArrowColumns(1024, 8);
        memory.beginBatch(assembler);
        assembler.drain(frames, second);
        assertEquals(List.of("a"), memory.rows(assembler));
        assertEquals(second, frames.position());
    }

    @Test
    void carriesAnUnfinishedMessageIntoTheNextMemory()
    {
        frames.appendData(UNFRAGMENTED, "a");
        frames.appendData(BEGIN, "b".repeat(100));
        frames.appendData(END, "c".repeat(100));
        final ArrowColumns first = new ArrowColumns(64 + 160, 8); // no room for the last frame
        first.beginBatch(assembler);
        assertTrue(assembler.drain(frames, Long.MAX_VALUE));
        assertEquals(List.of("a"), first.rows(assembler));
        assertEquals(100, assembler.partialLength());
        assertThrows(IllegalArgumentException.class, () -> new ArrowColumns(99, 8).beginBatch(assembler));
        final ArrowColumns second = new ArrowColumns(1024, 8);
        second.beginBatch(assembler);
        assertFalse(assembler.drain(frames, Long.MAX_VALUE));
        assertEquals(List.of("b".repeat(100) + "c".repeat(100)), second.rows(assembler));
        assertEquals(64, second.positions.getLong(0));
    }

    @Test
    void assemblesRandomMessagesInMemoryOfRandomSizes()
    {
        final Random random = new Random(1);
        final List<String> wanted = new ArrayList<>();
        while (frames.end() < 100_000)
        {
            final StringBuilder message = new StringBuilder();
            final int fragments = 1 + random.nextInt(4);
            for (int fragment = 0; fragment < fragments; fragment++)
            {
                final String part = String.valueOf((char)('a' + random.nextInt(26))).repeat(random.nextInt(200));
                message.append(part);
                frames.appendData((byte)((fragment == 0 ? BEGIN : 0) | (fragment == fragments - 1 ? END : 0)), part);
            }
            wanted.add(message.toString());
        }
        final List<String> found = new ArrayList<>();
        boolean full = true;
        while (full)
        {
            final int values = Math.max(assembler.partialLength() + 256, 1 + random.nextInt(5_000));
            final ArrowColumns memory = new ArrowColumns(values, 1 + random.nextInt(50));
            memory.beginBatch(assembler);
            full = assembler.drain(frames, Long.MAX_VALUE);
            found.addAll(memory.rows(assembler));
        }
        assertEquals(wanted, found);
        assertEquals(frames.end(), frames.position());
    }
}

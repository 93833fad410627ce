package io.aeronspark.reading;

import static io.aeronspark.reading.RecordedFrames.BEGIN;
import static io.aeronspark.reading.RecordedFrames.END;
import static io.aeronspark.reading.RecordedFrames.WHOLE;
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
    private final RecordedFrames log = new RecordedFrames();
    private final RowAssembler drain = new RowAssembler(0, TERM);

    @Test
    void fragmentsBecomeOneRowAtTheirFirstPosition()
    {
        log.data(WHOLE, "a");
        log.data(BEGIN, "b");
        log.data((byte)0, "c");
        log.data(END, "d");
        log.padding(64);
        log.data(WHOLE, "e");
        final ArrowColumns memory = new ArrowColumns(1024, 8);
        memory.carry(drain);
        assertFalse(drain.drain(log, Long.MAX_VALUE));
        assertEquals(List.of("a", "bcd", "e"), memory.rows(drain));
        assertEquals(64, memory.positions.getLong(8));
        assertEquals(0, drain.discarded());
    }

    @Test
    void fragmentsOfNoWholeMessageAreCountedAndLeftOut()
    {
        log.data(END, "the rest of a message that began before");
        log.data(BEGIN, "its publisher died");
        log.data(WHOLE, "a");
        final ArrowColumns memory = new ArrowColumns(1024, 8);
        memory.carry(drain);
        drain.drain(log, Long.MAX_VALUE);
        assertEquals(List.of("a"), memory.rows(drain));
        assertEquals(2, drain.discarded());
        assertEquals(1, drain.valueBytes());
    }

    @Test
    void nothingIsReadFromTheLimitOn()
    {
        log.data(WHOLE, "a");
        final long second = log.data(WHOLE, "b");
        final ArrowColumns memory = new ArrowColumns(1024, 8);
        memory.carry(drain);
        drain.drain(log, second);
        assertEquals(List.of("a"), memory.rows(drain));
        assertEquals(second, log.position());
    }

    @Test
    void anUnfinishedMessageIsCarriedIntoTheNextMemory()
    {
        log.data(WHOLE, "a");
        log.data(BEGIN, "b".repeat(100));
        log.data(END, "c".repeat(100));
        final ArrowColumns first = new ArrowColumns(64 + 160, 8); // not room for the last frame
        first.carry(drain);
        assertTrue(drain.drain(log, Long.MAX_VALUE));
        assertEquals(List.of("a"), first.rows(drain));
        assertEquals(100, drain.partialLength());
        assertThrows(IllegalArgumentException.class, () -> new ArrowColumns(99, 8).carry(drain));
        final ArrowColumns second = new ArrowColumns(1024, 8);
        second.carry(drain);
        assertFalse(drain.drain(log, Long.MAX_VALUE));
        assertEquals(List.of("b".repeat(100) + "c".repeat(100)), second.rows(drain));
        assertEquals(64, second.positions.getLong(0));
    }

    @Test
    void anyMessagesComeBackThroughMemoryOfAnySize()
    {
        final Random random = new Random(1);
        final List<String> wanted = new ArrayList<>();
        while (log.end() < 100_000)
        {
            final StringBuilder message = new StringBuilder();
            final int fragments = 1 + random.nextInt(4);
            for (int fragment = 0; fragment < fragments; fragment++)
            {
                final String part = String.valueOf((char)('a' + random.nextInt(26))).repeat(random.nextInt(200));
                message.append(part);
                log.data((byte)((fragment == 0 ? BEGIN : 0) | (fragment == fragments - 1 ? END : 0)), part);
            }
            wanted.add(message.toString());
        }
        final List<String> found = new ArrayList<>();
        boolean full = true;
        while (full)
        {
            final int values = Math.max(drain.partialLength() + 256, 1 + random.nextInt(5_000));
            final ArrowColumns memory = new ArrowColumns(values, 1 + random.nextInt(50));
            memory.carry(drain);
            full = drain.drain(log, Long.MAX_VALUE);
            found.addAll(memory.rows(drain));
        }
        assertEquals(wanted, found);
        assertEquals(log.end(), log.position());
    }
}

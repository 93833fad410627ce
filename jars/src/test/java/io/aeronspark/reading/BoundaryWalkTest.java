package io.aeronspark.reading;

import static io.aeronspark.reading.RecordedFrames.BEGIN;
import static io.aeronspark.reading.RecordedFrames.END;
import static io.aeronspark.reading.RecordedFrames.WHOLE;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class BoundaryWalkTest
{
    private static final int FIRST = 1;
    private static final int LAST = 2;
    private static final int CHUNK = 128; // bytes of the log: two headers of 32 and 72 bytes, aligned
    private static final long NO_LIMIT = Long.MAX_VALUE;
    private final RecordedFrames log = new RecordedFrames();

    private BoundaryWalk walk(final boolean framed, final long limit, final long maxRows, final boolean atLeastOne)
    {
        final BoundaryWalk walk = new BoundaryWalk(0, 1 << 16, framed, 0, limit, maxRows, atLeastOne);
        log.walk(walk);
        return walk;
    }

    @Test
    void theLastBoundaryWithinALimitOfBytesIsFound()
    {
        for (int message = 0; message < 4; message++)
        {
            log.data(WHOLE, "x");
        }
        for (int limit = 64; limit <= 256; limit++)
        {
            final BoundaryWalk walk = walk(false, limit, NO_LIMIT, true);
            assertEquals(limit / 64 * 64, walk.boundary());
            assertEquals(limit / 64, walk.rows());
        }
        assertEquals(64, walk(false, 10, NO_LIMIT, true).boundary()); // at least one, so that it never sticks
        assertEquals(-1, walk(false, 10, NO_LIMIT, false).boundary());
    }

    @Test
    void theLastBoundaryWithinALimitOfRowsIsFound()
    {
        log.chunk(FIRST | LAST, 10, 0);
        log.chunk(FIRST | LAST, 10, CHUNK);
        log.chunk(FIRST | LAST, 10, 2 * CHUNK);
        assertEquals(CHUNK, walk(true, NO_LIMIT, 19, true).boundary());
        assertEquals(2 * CHUNK, walk(true, NO_LIMIT, 20, true).boundary());
        assertTrue(walk(true, NO_LIMIT, 20, true).done());
        assertEquals(CHUNK, walk(true, NO_LIMIT, 3, true).boundary());
        assertEquals(3 * CHUNK, walk(true, NO_LIMIT, 31, true).boundary());
        assertFalse(walk(true, NO_LIMIT, 31, true).done());
        assertEquals(2, walk(false, NO_LIMIT, 2, true).rows()); // single messages count one each
    }

    @Test
    void aMessageInFragmentsEndsWithItsLastOne()
    {
        log.data(WHOLE, "a");
        log.data(BEGIN, "b");
        log.data((byte)0, "c");
        assertEquals(64, walk(false, NO_LIMIT, NO_LIMIT, true).boundary());
        assertEquals(64, walk(false, NO_LIMIT, NO_LIMIT, true).open());
        log.data(END, "d");
        assertEquals(256, walk(false, NO_LIMIT, NO_LIMIT, true).boundary());
        assertEquals(-1, walk(false, NO_LIMIT, NO_LIMIT, true).open());
    }

    @Test
    void aGroupOfChunksEndsWithItsLastOne()
    {
        log.chunk(FIRST | LAST, 1, 0);
        log.chunk(FIRST, 1, CHUNK);
        log.chunk(0, 1, CHUNK);
        final BoundaryWalk open = walk(true, NO_LIMIT, NO_LIMIT, true);
        assertEquals(CHUNK, open.boundary());
        assertEquals(CHUNK, open.open());
        log.chunk(LAST, 5, CHUNK);
        final BoundaryWalk closed = walk(true, NO_LIMIT, NO_LIMIT, true);
        assertEquals(4 * CHUNK, closed.boundary());
        assertEquals(6, closed.rows());
        assertEquals(-1, closed.open());
        assertEquals(4 * CHUNK, walk(false, NO_LIMIT, NO_LIMIT, true).boundary());
    }

    @Test
    void aWalkThatBeginsWithinAGroupKnowsWhereItBegan()
    {
        log.chunk(0, 1, 8192);
        final BoundaryWalk walk = new BoundaryWalk(0, 1 << 16, true, 65536, NO_LIMIT, NO_LIMIT, true);
        walk.scan(log.buffer, 0, (int)log.end(), 65536);
        assertEquals(-1, walk.boundary());
        assertEquals(8192, walk.open());
    }

    @Test
    void paddingRightBehindABoundaryBelongsToIt()
    {
        log.data(WHOLE, "a");
        log.padding(96);
        assertEquals(160, walk(false, NO_LIMIT, NO_LIMIT, true).boundary());
        assertEquals(64, walk(false, 100, NO_LIMIT, true).boundary());
        assertEquals(1, walk(false, NO_LIMIT, NO_LIMIT, true).rows());
    }
}

package io.aeronspark.reading;

import static io.aeronspark.reading.RecordedFrames.BEGIN;
import static io.aeronspark.reading.RecordedFrames.END;
import static io.aeronspark.reading.RecordedFrames.MIDDLE;
import static io.aeronspark.reading.RecordedFrames.UNFRAGMENTED;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class BoundaryWalkTest
{
    private static final int FIRST = 1;
    private static final int LAST = 2;
    private static final int CHUNK = 128; // bytes of a chunk's frame: headers of 32 and 72 bytes, aligned
    private static final long NO_LIMIT = Long.MAX_VALUE;
    private final RecordedFrames frames = new RecordedFrames();

    private BoundaryWalk walk(final boolean framed, final long limit, final long maxRows, final boolean atLeastOne)
    {
        final BoundaryWalk walk = new BoundaryWalk(0, 1 << 16, framed, 0, limit, maxRows, atLeastOne);
        frames.walkAll(walk);
        return walk;
    }

    @Test
    void findsTheLastBoundaryUpToALimitPosition()
    {
        for (int message = 0; message < 4; message++)
        {
            frames.appendData(UNFRAGMENTED, "x");
        }
        for (int limit = 64; limit <= 256; limit++)
        {
            final BoundaryWalk walk = walk(false, limit, NO_LIMIT, true);
            assertEquals(limit / 64 * 64, walk.boundary());
            assertEquals(limit / 64, walk.rows());
        }
        assertEquals(64, walk(false, 10, NO_LIMIT, true).boundary()); // so that a reader always advances
        assertEquals(-1, walk(false, 10, NO_LIMIT, false).boundary());
    }

    @Test
    void findsTheLastBoundaryUpToALimitOfRows()
    {
        frames.appendChunk(FIRST | LAST, 10, 0);
        frames.appendChunk(FIRST | LAST, 10, CHUNK);
        frames.appendChunk(FIRST | LAST, 10, 2 * CHUNK);
        assertEquals(CHUNK, walk(true, NO_LIMIT, 19, true).boundary());
        assertEquals(2 * CHUNK, walk(true, NO_LIMIT, 20, true).boundary());
        assertTrue(walk(true, NO_LIMIT, 20, true).done());
        assertEquals(CHUNK, walk(true, NO_LIMIT, 3, true).boundary());
        assertEquals(3 * CHUNK, walk(true, NO_LIMIT, 31, true).boundary());
        assertFalse(walk(true, NO_LIMIT, 31, true).done());
        assertEquals(2, walk(false, NO_LIMIT, 2, true).rows()); // in an unframed stream each message is one row
    }

    @Test
    void endsAFragmentedMessageAtItsLastFragment()
    {
        frames.appendData(UNFRAGMENTED, "a");
        frames.appendData(BEGIN, "b");
        frames.appendData(MIDDLE, "c");
        assertEquals(64, walk(false, NO_LIMIT, NO_LIMIT, true).boundary());
        assertEquals(64, walk(false, NO_LIMIT, NO_LIMIT, true).open());
        frames.appendData(END, "d");
        assertEquals(256, walk(false, NO_LIMIT, NO_LIMIT, true).boundary());
        assertEquals(-1, walk(false, NO_LIMIT, NO_LIMIT, true).open());
    }

    @Test
    void passesOverADamagedPartAsOverPadding()
    {
        frames.appendData(UNFRAGMENTED, "a");
        frames.appendData(BEGIN, "b");
        final BoundaryWalk open = walk(false, 1 << 20, NO_LIMIT, true);
        open.onDamage(1 << 16);
        assertEquals(1 << 16, open.boundary());
        assertEquals(-1, open.open()); // the unfinished message is abandoned
        assertEquals(1, open.rows());
        assertFalse(open.done());

        final BoundaryWalk limited = walk(false, 1 << 10, NO_LIMIT, true);
        limited.onDamage(1 << 16);
        assertEquals(64, limited.boundary()); // the damaged part ends behind the limit
        assertTrue(limited.done());

        final BoundaryWalk first = new BoundaryWalk(0, 1 << 16, false, 0, 10, NO_LIMIT, true);
        first.onDamage(1 << 16);
        assertEquals(1 << 16, first.boundary()); // so that a reader always advances
        assertEquals(0, first.rows());
    }

    @Test
    void endsAGroupAtItsLastChunk()
    {
        frames.appendChunk(FIRST | LAST, 1, 0);
        frames.appendChunk(FIRST, 1, CHUNK);
        frames.appendChunk(0, 1, CHUNK);
        final BoundaryWalk open = walk(true, NO_LIMIT, NO_LIMIT, true);
        assertEquals(CHUNK, open.boundary());
        assertEquals(CHUNK, open.open());
        frames.appendChunk(LAST, 5, CHUNK);
        final BoundaryWalk closed = walk(true, NO_LIMIT, NO_LIMIT, true);
        assertEquals(4 * CHUNK, closed.boundary());
        assertEquals(6, closed.rows());
        assertEquals(-1, closed.open());
        assertEquals(4 * CHUNK, walk(false, NO_LIMIT, NO_LIMIT, true).boundary());
    }

    @Test
    void reportsTheBeginningOfAGroupThatStartedBeforeTheWalk()
    {
        frames.appendChunk(0, 1, 8192);
        final BoundaryWalk walk = new BoundaryWalk(0, 1 << 16, true, 65536, NO_LIMIT, NO_LIMIT, true);
        walk.scan(frames.buffer, 0, (int)frames.end(), 65536);
        assertEquals(-1, walk.boundary());
        assertEquals(8192, walk.open());
    }

    @Test
    void movesABoundaryBehindThePaddingThatFollowsIt()
    {
        frames.appendData(UNFRAGMENTED, "a");
        frames.appendPadding(96);
        assertEquals(160, walk(false, NO_LIMIT, NO_LIMIT, true).boundary());
        assertEquals(64, walk(false, 100, NO_LIMIT, true).boundary());
        assertEquals(1, walk(false, NO_LIMIT, NO_LIMIT, true).rows());
    }
}

package io.aeronspark.spark.read;

import io.aeronspark.reading.RowAssembler;
import io.aeronspark.spark.archive.ArchiveLog;
import io.aeronspark.spark.archive.RecordedRows;
import io.aeronspark.spark.archive.UnreadableBytesException;
import io.aeronspark.spark.column.RowBatch;
import io.aeronspark.spark.error.DataFormatError;
import io.aeronspark.spark.error.DataLossError;
import io.aeronspark.spark.plan.BoundaryRule;
import io.aeronspark.spark.plan.Finding;
import io.aeronspark.spark.plan.Range;
import io.aeronspark.spark.plan.RecordingKey;
import io.aeronspark.spark.plan.RecordingState;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The rows of a planned range, of which a part may be gone by now: purged, truncated, deleted, replaced or damaged. A
 * loss is an error or, with failOnDataLoss=false, a warning; no row comes twice. Not thread-safe.
 */
final class AvailableRows implements AutoCloseable
{
    private static final Logger LOG = LoggerFactory.getLogger(AvailableRows.class);

    private final ArchiveLog log;
    private final Range wanted;
    private final RowBatch batch;
    private final ReaderFactory settings;
    private RecordingState state;
    private RowAssembler assembler;
    private RecordedRows rows;
    private UnreadableBytesException unreadable;
    private long at;
    private long end;
    private long waits;
    private boolean isEnded;
    private boolean isBegun;

    /**
     * @param batch that gets the rows.
     */
    AvailableRows(final ArchiveLog log, final Range wanted, final RowBatch batch, final ReaderFactory settings)
    {
        this.log = log;
        this.wanted = wanted;
        this.batch = batch;
        this.settings = settings;
        at = wanted.start();
        end = wanted.end();
    }

    /** Fill the batch, and return its number of rows, 0 at the end of the range. */
    int next()
    {
        if (rows != null)
        {
            rows.onConsumed();
        }
        int count = 0;
        while (count == 0 && !isEnded)
        {
            if (rows == null && !open())
            {
                isEnded = true;
                break;
            }
            count = fill();
        }
        if (count > 0 && !settings.isRaw())
        {
            refuseFramed(count);
        }
        return count;
    }

    long waits()
    {
        return waits + (rows == null ? 0 : rows.waits());
    }

    @Override
    public void close()
    {
        if (rows != null)
        {
            waits += rows.waits();
            rows.close();
            rows = null;
        }
    }

    /** Open the range at the next readable position; return false if nothing is left of it. */
    private boolean open()
    {
        if (!isBegun)
        {
            isBegun = true;
            if (!begin())
            {
                return false;
            }
        }
        do
        {
            if (unreadable != null)
            {
                passUnreadable();
            }
            final Finding loss = loss();
            if (loss != null)
            {
                accept(loss);
            }
            if (state == null || !state.fingerprint().equals(wanted.fingerprint()))
            {
                return false;
            }
            at = Math.max(at, state.start());
            end = Math.min(end, state.end());
            if (at >= end)
            {
                return false;
            }
        }
        while (!isOpened());
        return true;
    }

    private boolean isOpened()
    {
        try
        {
            rows = log.rows(state, at, end);
        }
        catch (final UnreadableBytesException ex)
        {
            unreadable = ex;
            return false;
        }
        assembler = new RowAssembler(state.initialTermId(), state.termLength());
        batch.of(state);
        return true;
    }

    /** Look for the recording; return false, after a warning, if it was deleted or rewritten since it was planned. */
    private boolean begin()
    {
        state = log.find(wanted.key());
        if (state == null)
        {
            final String what = "recording " + RecordingKey.id(wanted.key()) + " of archive " +
                RecordingKey.archive(wanted.key()) + " does not exist any more";
            return skip(new DataLossError(
                what, "Set failOnDataLoss=false to continue with the available data."));
        }
        return !wanted.isRewritten(log, state) || skip(Finding.rewritten(wanted.key(), wanted.batchEnd()).error());
    }

    private boolean skip(final DataLossError loss)
    {
        if (settings.failOnDataLoss())
        {
            throw loss;
        }
        LOG.warn(loss.what());
        return false;
    }

    /** Continue behind unreadable bytes, unless the recording has changed. */
    private void passUnreadable()
    {
        final UnreadableBytesException found = unreadable;
        unreadable = null;
        at = found.position();
        state = log.find(wanted.key());
        if (loss() != null)
        {
            return;
        }
        if (found.error() != null)
        {
            throw found.error();
        }
        // Without a loss, the recording exists and has the range.
        accept(Finding.damaged(wanted.key(), at, state.end()));
        at = BoundaryRule.afterDamage(at, wanted.termLength(), end);
    }

    private int fill()
    {
        batch.begin(assembler);
        try
        {
            while (rows.hasMore())
            {
                if (rows.fill(assembler))
                {
                    if (assembler.rows() > 0)
                    {
                        return assembler.rows();
                    }
                    batch.begin(assembler); // One message fills the memory, and gets a larger one.
                }
            }
            isEnded = true;
        }
        catch (final UnreadableBytesException ex)
        {
            unreadable = ex;
        }
        final int count = assembler.rows();
        close();
        return count;
    }

    private Finding loss()
    {
        final String key = wanted.key();
        if (state == null)
        {
            return Finding.deleted(key, at);
        }
        if (!state.fingerprint().equals(wanted.fingerprint()))
        {
            return Finding.replaced(key, at, wanted.fingerprint(), state.fingerprint());
        }
        if (state.start() > at)
        {
            return Finding.startPurged(key, at, state.start());
        }
        return state.end() < end ? Finding.truncated(key, end, state.end()) : null;
    }

    private void accept(final Finding loss)
    {
        if (settings.failOnDataLoss())
        {
            throw loss.error();
        }
        LOG.warn(loss.sentence());
    }

    private void refuseFramed(final int count)
    {
        final int row = batch.firstFramed(count);
        if (row >= 0)
        {
            final String held = batch.isArrow(row) ? "arrow" : "framed";
            throw new DataFormatError(
                "the message at position " + batch.position(row) + " of recording " + wanted.key() + " is " + held +
                ", and payload=auto began with raw ones",
                "Use format('aeron'), so that payload=auto finds what the stream holds. payload=raw reads the " +
                "unchanged bytes.");
        }
    }
}

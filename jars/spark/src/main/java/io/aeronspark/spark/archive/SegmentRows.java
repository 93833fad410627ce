package io.aeronspark.spark.archive;

import io.aeronspark.reading.RowAssembler;
import io.aeronspark.reading.SegmentFile;
import org.agrona.CloseHelper;
import org.agrona.LangUtil;

/**
 * The messages of {@code [start, end)} of a recording, both frame boundaries, from its segment files. If a file is
 * missing the range ends early at {@link #position()}, which is then the start of a segment and of a message.
 */
final class SegmentRows implements RecordedRows
{
    private final SegmentFiles files;
    private final long end;
    private long position;
    private long mappedAt;
    private SegmentFile open;

    SegmentRows(final SegmentFiles files, final long start, final long end)
    {
        this.files = files;
        this.end = end;
        this.position = start;
    }

    long position()
    {
        return position;
    }

    @Override
    public boolean hasMore()
    {
        if (position < end && (open == null || position >= open.end()))
        {
            next();
        }
        return position < end && open != null;
    }

    @Override
    public boolean fill(final RowAssembler assembler) throws UnreadableBytesException
    {
        final boolean isFull;
        try
        {
            isFull = assembler.drain(open, end);
        }
        catch (final IllegalStateException ex)
        {
            position = open.position();
            throw new UnreadableBytesException(position, null);
        }
        position = open.position();
        if (!isFull && position < Math.min(end, open.end()))
        {
            if (position <= mappedAt)
            {
                throw new UnreadableBytesException(position, null);
            }
            next(); // A frame extends beyond the mapped part: map again from its start.
        }
        return isFull;
    }

    @Override
    public void onConsumed()
    {
        // Files have the whole range already, so this never waits.
    }

    @Override
    public long waits()
    {
        return 0;
    }

    @Override
    public void close()
    {
        CloseHelper.close(open);
        open = null;
    }

    private void next()
    {
        close();
        final SegmentFiles.Segment segment = files.at(position);
        if (segment != null)
        {
            mappedAt = position;
            try
            {
                open = new SegmentFile(segment.path().toString(), segment.base(), position);
            }
            catch (final Exception ex)
            {
                if (Thread.currentThread().isInterrupted())
                {
                    LangUtil.rethrowUnchecked(ex); // An interrupt has closed the channel of the file.
                }
                open = null; // Deleted, or truncated, since it was found.
            }
        }
    }
}

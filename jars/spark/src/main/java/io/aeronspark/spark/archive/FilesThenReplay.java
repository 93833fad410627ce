package io.aeronspark.spark.archive;

import io.aeronspark.reading.RowAssembler;

/** Messages from segment files and, where a file is missing, from a replay. */
final class FilesThenReplay implements RecordedRows
{
    private final SegmentRows files;
    private final long end;
    private final ReplayFrom replayFrom;
    private RecordedRows replay;

    /** Begins a replay. */
    interface ReplayFrom
    {
        RecordedRows at(long position) throws UnreadableBytesException;
    }

    FilesThenReplay(final SegmentRows files, final long end, final ReplayFrom replayFrom)
    {
        this.files = files;
        this.end = end;
        this.replayFrom = replayFrom;
    }

    @Override
    public boolean hasMore()
    {
        return replay != null ? replay.hasMore() : files.hasMore() || files.position() < end;
    }

    @Override
    public boolean fill(final RowAssembler assembler) throws UnreadableBytesException
    {
        if (replay == null && files.hasMore())
        {
            return files.fill(assembler);
        }
        if (replay == null)
        {
            replay = replayFrom.at(files.position());
        }
        return replay.fill(assembler);
    }

    @Override
    public void onConsumed()
    {
        if (replay != null)
        {
            replay.onConsumed();
        }
    }

    @Override
    public long waits()
    {
        return replay == null ? 0 : replay.waits();
    }

    @Override
    public void close()
    {
        files.close();
        if (replay != null)
        {
            replay.close();
        }
    }
}

package io.aeronspark.spark.archive;

import io.aeronspark.reading.RowAssembler;

/** The messages of a range of a recording by a replay, for which it waits. */
final class ReplayRows implements RecordedRows
{
    private final ReplayedRange replayed;
    private final long end;

    ReplayRows(
        final ArchiveSession session,
        final Recording recording,
        final long start,
        final long end,
        final long timeoutNs) throws UnreadableBytesException
    {
        this.end = end;
        replayed = new ReplayedRange(session, recording, start, end, timeoutNs);
    }

    @Override
    public boolean hasMore()
    {
        return replayed.position() < end;
    }

    @Override
    public boolean fill(final RowAssembler assembler) throws UnreadableBytesException
    {
        return replayed.poll((image) -> assembler.drain(image, end));
    }

    @Override
    public void onConsumed()
    {
        replayed.progress();
    }

    @Override
    public long waits()
    {
        return replayed.waits();
    }

    @Override
    public void close()
    {
        replayed.close();
    }
}

package io.aeronspark.spark.archive;

import io.aeronspark.reading.RowAssembler;
import java.util.concurrent.TimeUnit;

/** The messages of a range of a recording by a replay, for which it waits. */
final class ReplayRows implements RecordedRows
{
    /** An archive drops a session, with its replays, if the client has not polled responses for some minutes. */
    private static final long KEEP_ALIVE_NS = TimeUnit.SECONDS.toNanos(30);

    private final ArchiveSession session;
    private final ReplayedRange replayed;
    private final long end;
    private long keptAliveNs = System.nanoTime();

    ReplayRows(
        final ArchiveSession session,
        final Recording recording,
        final long start,
        final long end,
        final long timeoutNs) throws UnreadableBytesException
    {
        this.session = session;
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
        final long now = System.nanoTime();
        if (now - keptAliveNs > KEEP_ALIVE_NS)
        {
            keptAliveNs = now;
            session.keepAlive();
        }
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

package io.aeron;

import static io.aeron.logbuffer.LogBufferDescriptor.LOG_META_DATA_LENGTH;
import static io.aeron.logbuffer.LogBufferDescriptor.PARTITION_COUNT;
import static io.aeron.logbuffer.LogBufferDescriptor.TERM_MIN_LENGTH;

import io.aeron.logbuffer.LogBufferDescriptor;
import io.aeron.protocol.DataHeaderFlyweight;
import java.io.IOException;
import java.nio.MappedByteBuffer;
import java.nio.file.Path;
import org.agrona.IoUtil;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.AtomicLongPosition;

/**
 * The log buffer of one publication in a file, made as a driver makes it, with a real publication and a real image of it.
 * A test does by hand what the driver does by itself: it connects, and it moves the limit and the consumed position.
 * <p>
 * It is in Aeron's package because the constructors of {@link ExclusivePublication}, {@link Image} and {@link LogBuffers}
 * are visible only there.
 */
public final class LogBufferOnDisk implements AutoCloseable
{
    public static final int SESSION_ID = 7;
    public static final int STREAM_ID = 1001;
    public static final int INITIAL_TERM_ID = 100;
    public static final int TERM_LENGTH = TERM_MIN_LENGTH;
    public static final int MTU = 1408;

    /** The position up to which the publication may write. */
    public final AtomicLongPosition limit = new AtomicLongPosition();
    /** The position up to which the image was read. */
    public final AtomicLongPosition consumed = new AtomicLongPosition();
    public final ExclusivePublication publication;
    public final Image image;

    private final LogBuffers publishing;
    private final LogBuffers reading;
    private final UnsafeBuffer metaData;

    public LogBufferOnDisk(final Path folder) throws IOException
    {
        final Path file = folder.resolve("test.logbuffer");
        final MappedByteBuffer mapped = IoUtil.mapNewFile(file.toFile(), (long)PARTITION_COUNT * TERM_LENGTH + LOG_META_DATA_LENGTH);
        final UnsafeBuffer header = new UnsafeBuffer(mapped, PARTITION_COUNT * TERM_LENGTH, LOG_META_DATA_LENGTH);
        LogBufferDescriptor.initialiseTailWithTermId(header, 0, INITIAL_TERM_ID);
        for (int partition = 1; partition < PARTITION_COUNT; partition++)
        {
            LogBufferDescriptor.initialiseTailWithTermId(header, partition, INITIAL_TERM_ID + partition - PARTITION_COUNT);
        }
        LogBufferDescriptor.initialTermId(header, INITIAL_TERM_ID);
        LogBufferDescriptor.termLength(header, TERM_LENGTH);
        LogBufferDescriptor.pageSize(header, 4096);
        LogBufferDescriptor.mtuLength(header, MTU);
        LogBufferDescriptor.endOfStreamPosition(header, Long.MAX_VALUE);
        LogBufferDescriptor.isConnected(header, true);
        LogBufferDescriptor.storeDefaultFrameHeader(
            header, DataHeaderFlyweight.createDefaultHeader(SESSION_ID, STREAM_ID, INITIAL_TERM_ID));
        IoUtil.unmap(mapped);
        publishing = new LogBuffers(file.toString());
        reading = new LogBuffers(file.toString());
        metaData = publishing.metaDataBuffer();
        publication = new ExclusivePublication(null, "aeron:ipc", STREAM_ID, SESSION_ID, limit, -1, publishing, 1, 1);
        image = new Image(
            null, SESSION_ID, consumed, reading, error -> { throw new AssertionError(error); }, "aeron:ipc", 1);
        limit.set(TERM_LENGTH);
    }

    public void connected(final boolean connected)
    {
        LogBufferDescriptor.isConnected(metaData, connected);
    }

    @Override
    public void close()
    {
        publishing.close();
        reading.close();
    }
}

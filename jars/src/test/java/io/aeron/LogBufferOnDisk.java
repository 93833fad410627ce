package io.aeron;

import static io.aeron.logbuffer.LogBufferDescriptor.LOG_META_DATA_LENGTH;
import static io.aeron.logbuffer.LogBufferDescriptor.PARTITION_COUNT;
import static io.aeron.logbuffer.LogBufferDescriptor.TERM_MIN_LENGTH;

import io.aeron.logbuffer.BufferClaim;
import io.aeron.logbuffer.FrameDescriptor;
import io.aeron.logbuffer.LogBufferDescriptor;
import io.aeron.protocol.DataHeaderFlyweight;
import java.io.IOException;
import java.nio.MappedByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import org.agrona.ErrorHandler;
import org.agrona.IoUtil;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.AtomicLongPosition;

/**
 * The log buffer of one publication in a file, made as a driver makes it, with a real publication and a real image of
 * it. A test does by hand what the driver does by itself: it connects, and it moves the limit and the consumed
 * position.
 * <p>
 * It is in Aeron's package because the constructors of {@link ExclusivePublication}, {@link Image} and
 * {@link LogBuffers} are visible only there.
 */
public final class LogBufferOnDisk implements AutoCloseable
{
    public static final int SESSION_ID = 7;
    public static final int STREAM_ID = 1001;
    public static final int INITIAL_TERM_ID = 100;
    public static final int TERM_LENGTH = TERM_MIN_LENGTH;
    public static final int MTU = 1408;
    public static final long IMAGE_ID = 33;

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
        final long length = (long)PARTITION_COUNT * TERM_LENGTH + LOG_META_DATA_LENGTH;
        final MappedByteBuffer mapped = IoUtil.mapNewFile(file.toFile(), length);
        final UnsafeBuffer header = new UnsafeBuffer(mapped, PARTITION_COUNT * TERM_LENGTH, LOG_META_DATA_LENGTH);
        LogBufferDescriptor.initialiseTailWithTermId(header, 0, INITIAL_TERM_ID);
        for (int partition = 1; partition < PARTITION_COUNT; partition++)
        {
            final int termId = INITIAL_TERM_ID + partition - PARTITION_COUNT;
            LogBufferDescriptor.initialiseTailWithTermId(header, partition, termId);
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
        image = newImage(1, IMAGE_ID);
        limit.set(TERM_LENGTH);
    }

    /** A subscription that is connected to no client: it can be neither closed nor polled. */
    public static Subscription newSubscription(final long registrationId)
    {
        return new Subscription(null, "aeron:ipc", STREAM_ID, registrationId, null, null);
    }

    /** Another image of the publication, from the consumed position on. */
    public Image newImage(final long subscriptionRegistrationId, final long imageId)
    {
        final Subscription subscription = newSubscription(subscriptionRegistrationId);
        final ErrorHandler errors = error ->
        {
            throw new AssertionError(error);
        };
        return new Image(subscription, SESSION_ID, consumed, reading, errors, "aeron:ipc", imageId);
    }

    /**
     * Publish the fragments {@code first} to {@code last - 1} of a message, as if the others were published before or
     * not yet. Fragments hold as much as the MTU permits.
     */
    public void publishFragments(final String message, final int first, final int last)
    {
        final byte[] bytes = message.getBytes(StandardCharsets.UTF_8);
        final int maxPayload = publication.maxPayloadLength();
        final int count = (bytes.length + maxPayload - 1) / maxPayload;
        for (int fragment = first; fragment < last; fragment++)
        {
            final int begin = fragment * maxPayload;
            final int length = Math.min(maxPayload, bytes.length - begin);
            final BufferClaim claim = new BufferClaim();
            if (publication.tryClaim(length, claim) < 0)
            {
                throw new AssertionError("no room in the log");
            }
            claim.buffer().putBytes(claim.offset(), bytes, begin, length);
            final int beginFlag = fragment == 0 ? FrameDescriptor.BEGIN_FRAG_FLAG : 0;
            final int endFlag = fragment == count - 1 ? FrameDescriptor.END_FRAG_FLAG : 0;
            claim.flags((byte)(beginFlag | endFlag)).commit();
        }
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

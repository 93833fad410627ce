package io.aeronspark.reading;

import java.io.File;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import org.agrona.IoUtil;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * A part of an archive's segment file, mapped and read in place. Bytes before the archive's recorded position do not
 * change any more. A file that the archive deletes meanwhile stays readable until it is closed here.
 */
public final class SegmentFile extends RecordingBytes implements AutoCloseable
{
    /** Bytes to map at once: they count as the process's memory. The longest padding, 16 MiB, has to fit. */
    private static final long MAX_MAPPED_LENGTH = 32 * 1024 * 1024;

    private final MappedByteBuffer mapped;

    /**
     * Map the bytes that follow a position.
     *
     * @param path     of the file.
     * @param fileBase position of the file's first byte.
     * @param from     position of the frame to begin at.
     */
    public SegmentFile(final String path, final long fileBase, final long from)
    {
        this(map(new File(path), from - fileBase), from);
    }

    private SegmentFile(final MappedByteBuffer mapped, final long from)
    {
        super(new UnsafeBuffer(mapped), from, mapped.capacity());
        this.mapped = mapped;
    }

    private static MappedByteBuffer map(final File file, final long offset)
    {
        final long length = Math.min(MAX_MAPPED_LENGTH, file.length() - offset);
        return IoUtil.mapExistingFile(file, FileChannel.MapMode.READ_ONLY, "segment", offset, length);
    }

    @Override
    public void close()
    {
        IoUtil.unmap(mapped);
    }
}

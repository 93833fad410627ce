package io.aeronspark.reading;

import java.io.File;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import org.agrona.IoUtil;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * A part of a segment file of an archive, mapped and read in place. What stands before the archive's recorded position does not change
 * any more, and a file that is purged meanwhile stays readable until it is closed.
 */
public final class SegmentFile extends RecordingBytes implements AutoCloseable
{
    /** Bytes mapped at once: they count as the process's memory. The longest padding, some 16 MiB, has to fit. */
    private static final long WINDOW = 32 * 1024 * 1024;

    private final MappedByteBuffer mapped;
    private final UnsafeBuffer buffer;

    /**
     * Map what follows a position.
     *
     * @param path of the file.
     * @param fileBase position of the file's first byte.
     * @param from position to begin at: a frame's beginning.
     */
    public SegmentFile(final String path, final long fileBase, final long from)
    {
        final File file = new File(path);
        final long length = Math.min(WINDOW, file.length() - (from - fileBase));
        mapped = IoUtil.mapExistingFile(file, FileChannel.MapMode.READ_ONLY, "segment", from - fileBase, length);
        buffer = new UnsafeBuffer(mapped);
        base = from;
        end = from + length;
        position = from;
    }

    @Override
    UnsafeBuffer buffer()
    {
        return buffer;
    }

    @Override
    public void close()
    {
        IoUtil.unmap(mapped);
    }
}

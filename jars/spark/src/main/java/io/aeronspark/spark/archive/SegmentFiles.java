package io.aeronspark.spark.archive;

import io.aeron.protocol.HeaderFlyweight;
import io.aeron.protocol.DataHeaderFlyweight;
import io.aeronspark.reading.BoundaryWalk;
import io.aeronspark.spark.plan.BoundaryRule;
import io.aeronspark.spark.plan.BoundaryRule.WalkRange;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import org.agrona.BitUtil;

/** The segment files of one recording, in the folder of an archive of this machine. */
final class SegmentFiles
{
    /** Bytes of a segment file that a walk maps in one step. */
    private static final int MAPPED_BYTES = 16 * 1024 * 1024;

    private final Path folder;
    private final Recording recording;

    /** A readable file, and the position of its first byte. */
    record Segment(Path path, long base)
    {
    }

    SegmentFiles(final String folder, final Recording recording)
    {
        this.folder = Path.of(folder);
        this.recording = recording;
    }

    /** Return the file with a position, or null if it is not readable. */
    Segment at(final long position)
    {
        final long base = recording.segmentBase(position);
        final Path path = folder.resolve(recording.id() + "-" + base + ".rec");
        return Files.isReadable(path) ? new Segment(path, base) : null;
    }

    /** Return bytes of one segment, or null if its file does not have them or is not readable. */
    byte[] read(final long position, final int length)
    {
        final Segment segment = at(position);
        if (segment == null)
        {
            return null;
        }
        final byte[] data = new byte[length];
        // Not by a channel, which an interrupt of the thread would close.
        try (RandomAccessFile file = new RandomAccessFile(segment.path.toFile(), "r"))
        {
            file.seek(position - segment.base);
            file.readFully(data);
            return data;
        }
        catch (final IOException ignored)
        {
            return null;
        }
    }

    /**
     * Walk frames in the files.
     *
     * @return the position reached: less than {@code range.stop()} only if the walk is done, or a file is missing.
     */
    long walk(final BoundaryWalk walk, final WalkRange range)
    {
        long at = range.start();
        while (at < range.stop() && !walk.done())
        {
            final Segment segment = at(at);
            if (segment == null)
            {
                return at; // Purged since, or not readable: a replay shows the cause.
            }
            final long fileEnd = segment.base + Math.min(recording.segmentLength(), length(segment.path));
            final long to = Math.min(Math.min(range.stop(), fileEnd), at + MAPPED_BYTES);
            long reached = to > at ? walk.walk(segment.path.toString(), segment.base, at, to) : at;
            if (reached == at)
            {
                if (range.stop() < range.end() && endsInsideFrame(at, to - at))
                {
                    return range.stop();
                }
                reached = BoundaryRule.afterDamage(at, recording.termLength(), range.end());
                walk.onDamage(reached);
            }
            at = reached;
        }
        return at;
    }

    /** Whether the frame at a position is longer than {@code size} bytes. */
    private boolean endsInsideFrame(final long position, final long size)
    {
        final byte[] header = read(position, DataHeaderFlyweight.HEADER_LENGTH);
        if (header == null)
        {
            return true;
        }
        final ByteBuffer buffer = ByteBuffer.wrap(header).order(ByteOrder.LITTLE_ENDIAN);
        final int frameLength = buffer.getInt(0);
        final int type = buffer.getShort(HeaderFlyweight.TYPE_FIELD_OFFSET) & 0xFFFF;
        final boolean isFrame = frameLength >= DataHeaderFlyweight.HEADER_LENGTH &&
            (type == HeaderFlyweight.HDR_TYPE_DATA || type == HeaderFlyweight.HDR_TYPE_PAD);
        final long aligned = BitUtil.align((long)frameLength, 32);
        final int termLength = recording.termLength();
        return isFrame && aligned <= termLength - position % termLength && aligned > size;
    }

    private static long length(final Path path)
    {
        try
        {
            return Files.size(path);
        }
        catch (final IOException ex)
        {
            throw new UncheckedIOException(ex);
        }
    }
}

package io.aeronspark.spark.archive;

import io.aeron.archive.client.AeronArchive;
import io.aeronspark.spark.plan.RecordingKey;
import io.aeronspark.spark.plan.RecordingState;
import java.nio.charset.StandardCharsets;
import java.util.zip.CRC32;

/**
 * A recording's entry in the archive's catalog. {@code stopPosition} and {@code stopTimestamp} are those of Aeron for an
 * active recording: -1.
 *
 * @param channel on which the archive has recorded it.
 */
record Recording(
    long id,
    long startTimestamp,
    long stopTimestamp,
    long startPosition,
    long stopPosition,
    int initialTermId,
    int segmentLength,
    int termLength,
    int mtu,
    int sessionId,
    int streamId,
    String channel)
{
    boolean isActive()
    {
        return stopPosition == AeronArchive.NULL_POSITION;
    }

    /** Return the first position of a position's segment; the first one begins with the term of the start. */
    long segmentBase(final long position)
    {
        final long origin = startPosition - startPosition % termLength;
        return position - (position - origin) % segmentLength;
    }

    /** Return the state of the recording, whose recorded position is {@code end}. */
    RecordingState state(final String archive, final long end)
    {
        return new RecordingState(
            RecordingKey.of(archive, id), fingerprint(), startPosition, end, isActive(), termLength, initialTermId, mtu,
            streamId, sessionId, RecordingStart.without(channel), startTimestamp,
            stopTimestamp == AeronArchive.NULL_TIMESTAMP ? Long.MAX_VALUE : stopTimestamp);
    }

    /**
     * Eight hex digits that distinguish the recording from another one with the same id. The Aeron session id is not
     * included, because an extension of the recording changes it.
     */
    private String fingerprint()
    {
        final CRC32 crc = new CRC32();
        final String numbers = initialTermId + "," + streamId + "," + termLength + "," + mtu + "," + startTimestamp;
        crc.update(numbers.getBytes(StandardCharsets.US_ASCII));
        return String.format("%08x", crc.getValue());
    }
}

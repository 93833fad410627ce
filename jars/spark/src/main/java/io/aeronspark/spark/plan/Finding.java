package io.aeronspark.spark.plan;

import static io.aeronspark.spark.plan.RecordingKey.named;

import io.aeronspark.spark.error.DataLossError;
import java.util.List;
import java.util.stream.Collectors;

/**
 * A loss of data in a recording, for an error or a warning.
 *
 * @param key      of the recording.
 * @param sentence what is gone.
 * @param remedy   for the user.
 */
public record Finding(Kind kind, String key, String sentence, String remedy)
{
    private static final int MAX_SHOWN = 20; // described in one error; further ones are counted
    private static final String CONTINUE = "set failOnDataLoss=false to continue with the available data, or start a " +
        "new query with a new checkpointLocation";

    /** The start of a recording is after the query's next position. */
    public static Finding startPurged(final String key, final long position, final long start)
    {
        return new Finding(
            Kind.START_PURGED,
            key,
            named(key) + " was purged: the query's next position is " + position + ", but the recording begins at " +
            start + " now; " + (start - position) + " bytes of the log are gone",
            "Purge only segments that all queries have read; " + CONTINUE);
    }

    /** The end of a recording is before the query's position. */
    public static Finding truncated(final String key, final long position, final long end)
    {
        return new Finding(
            Kind.TRUNCATED,
            key,
            named(key) + " was truncated: the query is at position " + position + ", but the recording ends at " + end +
            " now (by truncateRecording, or by a loss of power)",
            "Truncate only data that no query has read; " + CONTINUE);
    }

    /** A recording has no complete frame at a position before its end. */
    public static Finding damaged(final String key, final long position, final long end)
    {
        return new Finding(
            Kind.DAMAGED,
            key,
            named(key) + " is damaged at position " + position + ", the recording ends at " + end,
            "Restore the archive's files from a copy, or set failOnDataLoss=false to continue at the next term, or " +
            "at the end of the micro-batch before it");
    }

    /** A recording does not exist any more, and the query has not read it to its end. */
    public static Finding deleted(final String key, final long position)
    {
        return new Finding(
            Kind.DELETED,
            key,
            named(key) + " was deleted: the query's next position is " + position + ", but the recording does not " +
            "exist any more",
            "Check that 'archive' and its directory are those of the checkpoint; " + CONTINUE);
    }

    /** The recording with this id is not the one that the query has read. */
    public static Finding replaced(final String key, final long position, final String known, final String found)
    {
        return new Finding(
            Kind.REPLACED,
            key,
            named(key) + " was replaced: up to position " + position + " the query read the recording with " +
            "fingerprint " + known + ", but the recording with that id has fingerprint " + found + " now (its start " +
            "time, initial term id, term length, MTU or stream id differ)",
            "Check that 'archive' and its directory are those of the checkpoint; " + CONTINUE);
    }

    /** A recording was truncated before the query's position, and extended. */
    public static Finding rewritten(final String key, final long position)
    {
        return new Finding(
            Kind.REWRITTEN,
            key,
            named(key) + " was replaced from a position before " + position + ", up to which the query has read or " +
            "planned: it has other messages there now (it was truncated by truncateRecording, or by a loss of power, " +
            "and then extended)",
            "Truncate only data that no query has read; " + CONTINUE);
    }

    /** The change of the recording. */
    public enum Kind
    {
        START_PURGED,
        TRUNCATED,
        DAMAGED,
        DELETED,
        REPLACED,
        REWRITTEN
    }

    /** Return the error for this loss. */
    public DataLossError error()
    {
        return error(List.of(this));
    }

    /** Return one error for several losses. */
    static DataLossError error(final List<Finding> findings)
    {
        final String shown =
            findings.stream().limit(MAX_SHOWN).map(Finding::sentence).collect(Collectors.joining("; "));
        final String more =
            findings.size() > MAX_SHOWN ? "; and " + (findings.size() - MAX_SHOWN) + " more recordings" : "";
        return new DataLossError(
            "data was lost: " + shown + more,
            findings.stream().map(Finding::remedy).distinct().collect(Collectors.joining(". ")));
    }
}

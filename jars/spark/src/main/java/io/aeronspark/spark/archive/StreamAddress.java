package io.aeronspark.spark.archive;

import java.io.Serializable;
import java.util.List;

/**
 * The data that a process needs to open the log of a stream. Spark sends it to executors.
 *
 * @param idleTimeoutNs longest wait for recorded data that does not arrive.
 * @param readPath      option 'readPath': {@code auto}, {@code files} or {@code replay}.
 */
public record StreamAddress(
    String channel, int streamId, List<ArchiveAddress> archives, long idleTimeoutNs, String readPath)
    implements Serializable
{
    /** Name of the stream in errors. */
    public String label()
    {
        return "stream " + streamId + " of " + channel;
    }
}

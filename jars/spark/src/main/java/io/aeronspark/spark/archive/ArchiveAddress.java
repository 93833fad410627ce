package io.aeronspark.spark.archive;

import io.aeronspark.spark.channel.AeronUri;
import io.aeronspark.spark.channel.HostPort;
import java.io.Serializable;

/**
 * How to reach an archive.
 *
 * @param name            that identifies it in keys of recordings.
 * @param isLocal         whether it uses the client's own media driver.
 * @param archiveDir      folder of the archive of this machine's node; "" if the archive's files are unknown.
 * @param credentialsFile path, or "".
 * @param timeoutNs       longest wait for a response.
 */
public record ArchiveAddress(
    String name,
    String aeronDir,
    String controlChannel,
    int controlStreamId,
    String responseChannel,
    String replayChannel,
    boolean isLocal,
    String archiveDir,
    String credentialsFile,
    long timeoutNs)
    implements Serializable
{
    /** Name of the archive of this machine's node. */
    public static final String EMBEDDED = "embedded";

    /** Name or address of the archive's host, as Spark's scheduler compares it. */
    public String host()
    {
        if (isLocal)
        {
            return Hosts.name();
        }
        final AeronUri channel = AeronUri.parse(controlChannel);
        final String endpoint = channel.get("endpoint") == null ? channel.get("control") : channel.get("endpoint");
        return HostPort.parse(endpoint).host();
    }

    /** Whether the archive's files can be read by this machine's processes. */
    boolean hasFiles()
    {
        return !archiveDir.isEmpty();
    }
}

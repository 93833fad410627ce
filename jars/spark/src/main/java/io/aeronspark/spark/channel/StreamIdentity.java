package io.aeronspark.spark.channel;

/**
 * The parts of a channel that, with the stream id, identify an Aeron stream; without parameters for tuning. All but the
 * medium may be null.
 */
public record StreamIdentity(String media, String endpoint, String control, String controlMode, String networkInterface)
{
    static final StreamIdentity IPC = new StreamIdentity("ipc", null, null, null, null);
}

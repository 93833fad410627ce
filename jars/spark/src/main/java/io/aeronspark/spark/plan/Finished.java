package io.aeronspark.spark.plan;

import io.aeronspark.spark.channel.AeronUri;

import java.io.Serializable;

/** A recording that was read to {@code position}. After it, it has only an incomplete {@code tail}, usually 0 bytes. */
public record Finished(long position, long tail, String fingerprint) implements Serializable
{
    /** The recording's end when it was finished; a later end means that the recording was extended. */
    public long seen()
    {
        return position + tail;
    }

    /** Whether the positions are aligned, as Aeron's are, so that packing is lossless. */
    boolean isPackable()
    {
        return position % AeronUri.FRAME_ALIGNMENT == 0 && tail % AeronUri.FRAME_ALIGNMENT == 0;
    }
}

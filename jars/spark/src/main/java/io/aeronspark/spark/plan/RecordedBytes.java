package io.aeronspark.spark.plan;

/** Reads the bytes of recordings. */
@FunctionalInterface
public interface RecordedBytes
{
    /** Return bytes of one term; null if they cannot be read as files of this machine. */
    byte[] recordedBytes(RecordingState state, long position, int length);
}

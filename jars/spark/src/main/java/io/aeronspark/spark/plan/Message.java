package io.aeronspark.spark.plan;

import io.aeronspark.wire.ChunkLayout;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/** A complete message of a recording: the position of its first frame, its bytes, and its reserved value. */
public record Message(long position, byte[] value, long reservedValue)
{
    private static final int CONTENT_OFFSET = 5;
    private static final byte ARROW = 2;

    /** Whether the message begins like one of the wire format. */
    public boolean isFramed()
    {
        final ByteBuffer buffer = ByteBuffer.wrap(value).order(ByteOrder.LITTLE_ENDIAN);
        return value.length >= ChunkLayout.HEADER_LENGTH && buffer.getInt(0) == ChunkLayout.MAGIC;
    }

    /** Whether a message of the wire format is of an Arrow batch (docs/wire-format.md). */
    public boolean isArrow()
    {
        return value[CONTENT_OFFSET] == ARROW;
    }

    @Override
    public boolean equals(final Object other)
    {
        return other instanceof Message that &&
            position == that.position &&
            reservedValue == that.reservedValue &&
            Arrays.equals(value, that.value);
    }

    @Override
    public int hashCode()
    {
        return Long.hashCode(position) * 31 + Arrays.hashCode(value);
    }
}

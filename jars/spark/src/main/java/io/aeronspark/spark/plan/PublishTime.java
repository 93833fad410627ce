package io.aeronspark.spark.plan;

import io.aeronspark.spark.option.TimestampFrom;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** The publish time of a message. */
interface PublishTime
{
    /** Return the time in nanoseconds since 1970, or null if the message is too short for one. */
    Long of(Message message);

    /** Return the times of a location. */
    static PublishTime at(final TimestampFrom location)
    {
        return switch (location.location())
        {
            case "reserved-ns" -> Message::reservedValue;
            case "reserved-ms" -> (message) -> message.reservedValue() * 1_000_000;
            default -> (message) -> ofPayload(message.value(), location.offset());
        };
    }

    private static Long ofPayload(final byte[] value, final int offset)
    {
        final boolean isThere = (long)offset + Long.BYTES <= value.length;
        return isThere ? ByteBuffer.wrap(value).order(ByteOrder.LITTLE_ENDIAN).getLong(offset) : null;
    }
}

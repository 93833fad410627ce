package io.aeronspark.spark.option;

import java.io.Serializable;

/**
 * The location of the publish time in messages of other programs: {@code reserved-ns} or {@code reserved-ms}, Aeron's
 * reserved value; or {@code payload}, eight bytes at {@code offset} of the payload.
 */
public record TimestampFrom(String location, int offset) implements Serializable
{
}

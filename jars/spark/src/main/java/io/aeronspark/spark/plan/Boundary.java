package io.aeronspark.spark.plan;

/**
 * A position at which a message ends.
 *
 * @param rows messages between the requested start and the position; 0 if they were not counted.
 */
public record Boundary(long position, long rows)
{
}

package io.aeronspark.spark.option;

import java.io.Serializable;
import java.util.List;

/**
 * The bounds of a batch read: messages that begin from {@code start} on and before {@code end}, which may be null, of
 * these Aeron session ids (empty: all).
 */
public record Bounds(Long start, Long end, List<Integer> sessions) implements Serializable
{
}

/**
 * Plans queries: their offsets, the ranges of their recordings, boundaries, losses and Spark partitions. Pure: it asks a
 * {@link io.aeronspark.spark.plan.Log}, and has no clock, thread or I/O of its own. The rules and texts are those of
 * the Python packages {@code log} and {@code aeron/boundary}.
 */
package io.aeronspark.spark.plan;

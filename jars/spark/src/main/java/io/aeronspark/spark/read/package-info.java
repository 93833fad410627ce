/** The source {@code aeron-jvm} as Spark sees it: provider, table, scan, stream, partitions, readers and metrics. */
package io.aeronspark.spark.read;

/** Columns of Spark over the memory of a batch of messages. */
package io.aeronspark.spark.column;

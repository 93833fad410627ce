/** Aeron's channels: their parameters, addresses and streams, checked as by the Python source. Pure. */
package io.aeronspark.spark.channel;

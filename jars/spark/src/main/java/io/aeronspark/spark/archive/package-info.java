/**
 * The recordings of archives: sessions with them, the node of this machine, boundaries, replays, and the files of this
 * machine's archive.
 * <p>
 * A task's thread can be interrupted, and an interrupt while an Aeron client waits for its driver ends the whole client.
 * Therefore {@link io.aeronspark.spark.archive.Commands} has a thread for all calls that wait for a driver or an
 * archive.
 */
package io.aeronspark.spark.archive;

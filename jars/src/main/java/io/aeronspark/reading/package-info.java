/**
 * Reads recordings: walks frames in images, segment files and received bytes, assembles rows in Arrow memory, and finds
 * boundaries.
 */
package io.aeronspark.reading;

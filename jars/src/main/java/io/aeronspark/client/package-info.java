/**
 * What a Python process sets on its Aeron clients: threads, an error handler, and an end that frees the driver's resources at once.
 */
package io.aeronspark.client;

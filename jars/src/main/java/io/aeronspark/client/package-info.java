/**
 * Settings of the Aeron clients in a Python process: threads, an error handler, and a shutdown that lets the driver free
 * their resources at once.
 */
package io.aeronspark.client;

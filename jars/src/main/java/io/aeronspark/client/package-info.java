/**
 * Settings and handlers of the Aeron clients in a Python process: threads, errors, listings of an archive, single
 * messages, and a shutdown that lets the driver free their resources at once.
 */
package io.aeronspark.client;

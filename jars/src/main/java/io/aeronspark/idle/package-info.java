/**
 * Idle strategies for threads that poll: how long they sleep between two looks.
 */
package io.aeronspark.idle;

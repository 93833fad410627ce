/**
 * Receives for an endpoint: polls many subscriptions in one call and writes messages and events as records that Python
 * reads in place.
 */
package io.aeronspark.inbox;

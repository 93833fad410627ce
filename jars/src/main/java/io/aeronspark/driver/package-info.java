/**
 * Extensions of a media driver that shorten the round trips of handshakes; loaded through Aeron's supplier settings.
 */
package io.aeronspark.driver;

/**
 * Extensions of a media driver that drop unauthorised frames before they cost anything; see docs/driver-guard.md.
 */
package io.aeronspark.guard;

package io.aeronspark.guard;

import java.util.Locale;

/** Why the guard dropped a frame. The names are in the labels of counters, see docs/driver-guard.md. */
enum DropReason
{
    /** Not a frame of Aeron, or its fields contradict each other or its session. */
    INVALID,
    /** The network of the source is denied, or not allowed. */
    NETWORK,
    /** The term is longer than permitted. */
    TERM_LENGTH,
    /** The MTU is smaller or larger than permitted. */
    MTU,
    /** Too many introductions per second. */
    RATE,
    /** Too many sessions or receivers of the endpoint. */
    TOTAL,
    /** Too many sessions or receivers of one source. */
    SOURCE,
    /** The stream is not open, and the session has no registered owner. */
    UNOWNED,
    /** The source has not returned a cookie yet. Only receiving endpoints count this; they keep nothing for the source. */
    NO_COOKIE,
    /** The source is not the address of the session's owner, of its first SETUP, or of the publication's receiver. */
    FOREIGN,
    /** This driver has no subscription to the stream, or no publication of the session. */
    UNWANTED,
    /** An answer with which the driver would have sent more bytes than it received. Only of receiving endpoints. */
    BUDGET;

    /** As in the labels of counters. */
    String label()
    {
        return name().toLowerCase(Locale.ROOT).replace('_', '-');
    }
}

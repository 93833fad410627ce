package io.aeronspark.spark.option;

import java.io.Serializable;

/** A point in time: fixed, in nanoseconds since 1970, or a number of nanoseconds before now; the other one is null. */
public record Moment(Long fixedNs, Long agoNs) implements Serializable
{
    /** Return the time in nanoseconds since 1970. */
    public long at(final long nowNs)
    {
        return fixedNs != null ? fixedNs : nowNs - agoNs;
    }
}

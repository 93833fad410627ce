package io.aeronspark.spark.option;

import java.io.Serializable;

/**
 * The limits of a micro-batch; null means no limit. {@code maxDelayNs} is the longest wait for {@code minBytes}.
 * {@code availableNowBytes} limits the micro-batches of {@code Trigger.AvailableNow}, instead of {@code maxBytes}.
 */
public record BatchLimits(Long maxBytes, Long availableNowBytes, Long maxRows, Long minBytes, long maxDelayNs)
    implements Serializable
{
    static final BatchLimits NONE = new BatchLimits(null, null, null, null, 0);
}

package io.aeronspark.spark.archive;

import java.math.BigDecimal;
import java.math.MathContext;

/** Texts of durations in errors. */
final class Seconds
{
    private Seconds()
    {
    }

    /** Return seconds with at most six digits and without trailing zeros, such as {@code 0.5}. */
    static String text(final long ns)
    {
        return BigDecimal.valueOf(ns, 9).round(new MathContext(6)).stripTrailingZeros().toPlainString();
    }
}

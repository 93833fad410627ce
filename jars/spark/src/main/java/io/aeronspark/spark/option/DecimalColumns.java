package io.aeronspark.spark.option;

import java.io.Serializable;

/** The type of SBE's decimals: {@code exact}, {@code double}, or {@code decimal} with one precision and scale. */
public record DecimalColumns(String kind, int precision, int scale) implements Serializable
{
}

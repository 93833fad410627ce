package io.aeronspark.spark.option;

/** Parses the text of an option into its value. */
@FunctionalInterface
interface OptionType<T>
{
    /**
     * Parse a text.
     *
     * @throws io.aeronspark.spark.error.OptionError with a complete error.
     * @throws IllegalArgumentException              with the expected value.
     */
    T parse(String text, Option option);
}

/**
 * The options of the source: declared once, in Python, and parsed into immutable values before anything starts. Errors
 * have the texts of the Python source. Pure.
 */
package io.aeronspark.spark.option;

/**
 * The errors of the source, one class for each class of the Python package, with equal texts.
 */
package io.aeronspark.spark.error;

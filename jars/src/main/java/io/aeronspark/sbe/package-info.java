/**
 * Decodes SBE messages (Simple Binary Encoding) into Arrow memory that the caller allocated: one pass that walks all
 * messages and checks all bounds, then a loop for each column. A table that Python compiled from a schema says how.
 */
package io.aeronspark.sbe;

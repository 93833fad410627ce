/**
 * Offers messages from Arrow memory to a publication.
 */
package io.aeronspark.writing;

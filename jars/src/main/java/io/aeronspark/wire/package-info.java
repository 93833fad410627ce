/**
 * Encodes and decodes messages in the connector's wire format, docs/wire-format.md.
 */
package io.aeronspark.wire;

/**
 * CRC-32 at memory speed, for readers and writers of the chunk format.
 */
package io.aeronspark.checksum;

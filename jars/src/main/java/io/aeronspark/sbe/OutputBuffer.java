package io.aeronspark.sbe;

/** A buffer of an Arrow array in the caller's memory: reserved before, and {@code used} after the column is filled. */
final class OutputBuffer
{
    int offset;
    int used;
}

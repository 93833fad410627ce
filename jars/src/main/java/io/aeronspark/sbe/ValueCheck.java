package io.aeronspark.sbe;

/** Checks that a value fits the type of its column. */
interface ValueCheck
{
    /** Whether the value of the block at {@code base}, of a message of this version, is absent, null or fits. */
    boolean fits(Memory source, int base, int version);

    /** Name of the field. */
    String name();
}

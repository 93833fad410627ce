package io.aeronspark.spark.option;

/** A place where options are given. */
enum Where
{
    READ_STREAM("read stream"),
    READ_BATCH("read batch"),
    WRITE_STREAM("write stream"),
    WRITE_BATCH("write batch");

    private final String declared;

    Where(final String declared)
    {
        this.declared = declared;
    }

    /** The place in the declarations. */
    String declared()
    {
        return declared;
    }

    boolean isReading()
    {
        return this == READ_STREAM || this == READ_BATCH;
    }
}

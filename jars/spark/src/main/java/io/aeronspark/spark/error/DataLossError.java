package io.aeronspark.spark.error;

/** A wanted range of a recording is gone: purged, truncated, deleted, replaced or damaged. */
public final class DataLossError extends SourceError
{
    private static final long serialVersionUID = 1;

    /** With an event and an instruction, which may be "". */
    public DataLossError(final String what, final String remedy)
    {
        this(what, remedy, null);
    }

    /** With an event, an instruction, which may be "", and the cause, which may be null. */
    public DataLossError(final String what, final String remedy, final Throwable cause)
    {
        super(what, remedy, "", cause);
    }
}

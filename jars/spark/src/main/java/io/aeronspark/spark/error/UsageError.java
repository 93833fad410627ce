package io.aeronspark.spark.error;

/** A call that the object does not allow in its state. */
public final class UsageError extends SourceError
{
    private static final long serialVersionUID = 1;

    /** With an event and an instruction, which may be "". */
    public UsageError(final String what, final String remedy)
    {
        this(what, remedy, null);
    }

    /** With an event, an instruction, which may be "", and the cause, which may be null. */
    public UsageError(final String what, final String remedy, final Throwable cause)
    {
        super(what, remedy, "", cause);
    }
}

package io.aeronspark.spark.error;

/** Another process uses an exclusive resource. */
public final class InUseError extends SourceError
{
    private static final long serialVersionUID = 1;

    /** With an event and an instruction, which may be "". */
    public InUseError(final String what, final String remedy)
    {
        this(what, remedy, null);
    }

    /** With an event, an instruction, which may be "", and the cause, which may be null. */
    public InUseError(final String what, final String remedy, final Throwable cause)
    {
        super(what, remedy, "", cause);
    }
}

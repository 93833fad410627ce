package io.aeronspark.spark.error;

/** This machine lacks a requirement, or has too little of it. */
public final class SetupError extends SourceError
{
    private static final long serialVersionUID = 1;

    /** With an event and an instruction, which may be "". */
    public SetupError(final String what, final String remedy)
    {
        this(what, remedy, null);
    }

    /** With an event, an instruction, which may be "", and the cause, which may be null. */
    public SetupError(final String what, final String remedy, final Throwable cause)
    {
        super(what, remedy, "", cause);
    }
}

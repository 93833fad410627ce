package io.aeronspark.spark.error;

/** A media driver or an archive does not respond at its address. */
public final class ConnectError extends SourceError
{
    private static final long serialVersionUID = 1;

    /** With an event and an instruction, which may be "". */
    public ConnectError(final String what, final String remedy)
    {
        this(what, remedy, null);
    }

    /** With an event, an instruction, which may be "", and the cause, which may be null. */
    public ConnectError(final String what, final String remedy, final Throwable cause)
    {
        super(what, remedy, "", cause);
    }
}

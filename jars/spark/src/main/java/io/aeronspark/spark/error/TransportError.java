package io.aeronspark.spark.error;

/** Aeron failed: the driver ended, the archive returned an error, or a publication was closed. */
public final class TransportError extends SourceError
{
    private static final long serialVersionUID = 1;

    /** With an event and an instruction, which may be "". */
    public TransportError(final String what, final String remedy)
    {
        this(what, remedy, null);
    }

    /** With an event, an instruction, which may be "", and the cause, which may be null. */
    public TransportError(final String what, final String remedy, final Throwable cause)
    {
        super(what, remedy, "", cause);
    }
}

package io.aeronspark.spark.error;

/** A wait reached its deadline; the text has the awaited event and the last state. */
public final class WaitTimeout extends SourceError
{
    private static final long serialVersionUID = 1;

    /** With an event and an instruction, which may be "". */
    public WaitTimeout(final String what, final String remedy)
    {
        this(what, remedy, null);
    }

    /** With an event, an instruction, which may be "", and the cause, which may be null. */
    public WaitTimeout(final String what, final String remedy, final Throwable cause)
    {
        super(what, remedy, "", cause);
    }
}

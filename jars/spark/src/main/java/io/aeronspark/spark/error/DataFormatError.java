package io.aeronspark.spark.error;

/** Bytes are not in the expected format. */
public final class DataFormatError extends SourceError
{
    private static final long serialVersionUID = 1;

    /** With an event and an instruction, which may be "". */
    public DataFormatError(final String what, final String remedy)
    {
        this(what, remedy, null);
    }

    /** With an event, an instruction, which may be "", and the cause, which may be null. */
    public DataFormatError(final String what, final String remedy, final Throwable cause)
    {
        super(what, remedy, "", cause);
    }
}

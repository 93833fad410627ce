package io.aeronspark.spark.error;

/** Bytes are not in the expected format. With the reason {@link #TOO_LONG} a value is longer than a message may be. */
public final class DataFormatError extends SourceError
{
    /** The reason of an error about a value that is longer than a message may be. */
    public static final String TOO_LONG = "too-long";

    private static final long serialVersionUID = 1;

    /** With an event and an instruction, which may be "". */
    public DataFormatError(final String what, final String remedy)
    {
        this(what, remedy, "");
    }

    /** With an event, an instruction and a reason, which both may be "". */
    public DataFormatError(final String what, final String remedy, final String reason)
    {
        super(what, remedy, reason, null);
    }
}

package io.aeronspark.spark.error;

/** Base of the errors that are not about options. */
abstract class SourceError extends RuntimeException implements AeronSparkError
{
    private static final long serialVersionUID = 1;

    private final String what;
    private final String remedy;
    private final String reason;

    SourceError(final String what, final String remedy, final String reason, final Throwable cause)
    {
        super(AeronSparkError.message(what, remedy), cause);
        this.what = what;
        this.remedy = remedy;
        this.reason = reason;
    }

    @Override
    public final String what()
    {
        return what;
    }

    @Override
    public final String remedy()
    {
        return remedy;
    }

    @Override
    public final String reason()
    {
        return reason;
    }
}

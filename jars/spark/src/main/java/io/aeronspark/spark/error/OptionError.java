package io.aeronspark.spark.error;

/** An option is unknown, contradictory, out of range or missing. */
public final class OptionError extends IllegalArgumentException implements AeronSparkError
{
    private static final long serialVersionUID = 1;

    private final String what;
    private final String remedy;

    /** With an event and an instruction, which may be "". */
    public OptionError(final String what, final String remedy)
    {
        super(AeronSparkError.message(what, remedy));
        this.what = what;
        this.remedy = remedy;
    }

    @Override
    public String what()
    {
        return what;
    }

    @Override
    public String remedy()
    {
        return remedy;
    }

    @Override
    public String reason()
    {
        return "";
    }
}

package io.aeronspark.spark.error;

/**
 * An error of this source: what happened, why, and what to do. The message is {@code what. remedy}, as in the Python
 * package.
 */
public class AeronSparkError extends RuntimeException
{
    private static final long serialVersionUID = 1L;

    private final String what;
    private final String remedy;
    private final String reason;

    /**
     * @param what   happened, without a full stop.
     * @param remedy for the user, in the imperative.
     */
    public AeronSparkError(final String what, final String remedy)
    {
        this(what, remedy, "", null);
    }

    /**
     * @param what   happened, without a full stop.
     * @param remedy for the user, in the imperative.
     * @param reason a code that programs compare, or an empty text.
     * @param cause  of the error, or null.
     */
    public AeronSparkError(final String what, final String remedy, final String reason, final Throwable cause)
    {
        super(remedy.isEmpty() ? what : what + ". " + remedy, cause);
        this.what = what;
        this.remedy = remedy;
        this.reason = reason;
    }

    /** What happened. */
    public final String what()
    {
        return what;
    }

    /** What to do; can be empty. */
    public final String remedy()
    {
        return remedy;
    }

    /** The code of the reason; can be empty. */
    public final String reason()
    {
        return reason;
    }
}

package io.aeronspark.spark.archive;

/**
 * A recording has no complete frame at a position. All complete messages before it were taken. The cause, if there is
 * one, is the error of the reading: then the bytes may be there, but cannot be read.
 */
public final class UnreadableBytesException extends Exception
{
    private static final long serialVersionUID = 1;

    private final long position;

    UnreadableBytesException(final long position, final RuntimeException cause)
    {
        super("no complete frame at position " + position, cause);
        this.position = position;
    }

    /** Position of the damaged or missing frame. */
    public long position()
    {
        return position;
    }

    /** The error of the reading, or null. */
    public RuntimeException error()
    {
        return (RuntimeException)getCause();
    }
}

package io.aeronspark.spark.error;

/**
 * An error of this source: what happened and why, what the user can do, and a code for programs. Each class is that of
 * the Python source with the same name, and has the same text.
 */
public interface AeronSparkError
{
    /** The event and its cause. */
    String what();

    /** An instruction to the user, or "". */
    String remedy();

    /** A short code that a program can compare, or "". */
    String reason();

    /** Return the message of an exception. */
    static String message(final String what, final String remedy)
    {
        return remedy.isEmpty() ? what : what + ". " + remedy;
    }
}

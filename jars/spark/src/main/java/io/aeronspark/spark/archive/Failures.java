package io.aeronspark.spark.archive;

import io.aeron.archive.client.ArchiveException;
import io.aeron.exceptions.TimeoutException;
import io.aeronspark.spark.error.AeronSparkError;
import io.aeronspark.spark.error.ConnectError;
import io.aeronspark.spark.error.TransportError;
import java.util.concurrent.Callable;
import org.agrona.LangUtil;

/** Makes errors of this source from Aeron's exceptions. */
final class Failures
{
    private static final String[] CATEGORIES = {"ERROR - ", "FATAL - ", "WARN - "};

    private Failures()
    {
    }

    /** Return the result of a call; its errors name the action. */
    static <T> T during(final String action, final Callable<T> call)
    {
        try
        {
            return call.call();
        }
        catch (final Exception ex)
        {
            if (ex instanceof AeronSparkError)
            {
                LangUtil.rethrowUnchecked(ex);
            }
            final String what = action + " failed: " + describe(ex);
            throw ex instanceof TimeoutException ?
                new ConnectError(what, "See 'aeron-spark doctor'.", ex) : new TransportError(what, "", ex);
        }
    }

    /** Return {@code ShortClass: message}, without the category with which Aeron begins messages. */
    static String describe(final Throwable error)
    {
        String message = String.valueOf(error.getMessage());
        for (final String category : CATEGORIES)
        {
            message = message.startsWith(category) ? message.substring(category.length()) : message;
        }
        return error.getClass().getSimpleName() + ": " + message;
    }

    /** Return the code of the ArchiveException that caused an error, or -1. */
    static int archiveCode(final Throwable error)
    {
        for (Throwable cause = error; cause != null; cause = cause.getCause())
        {
            if (cause instanceof ArchiveException failure)
            {
                return failure.errorCode();
            }
        }
        return -1;
    }
}

package io.aeronspark.client;

import org.agrona.ErrorHandler;

/**
 * Keeps the last error of an Aeron client and counts them. Aeron's own default handler ends the process when the driver is gone, and a
 * handler written in Python would need the interpreter on Aeron's conductor thread.
 */
public final class LastErrorHandler implements ErrorHandler
{
    private volatile Throwable last;
    private volatile long count;

    @Override
    public synchronized void onError(final Throwable throwable)
    {
        last = throwable;
        count++;
    }

    /** The last error, or null. */
    public Throwable last()
    {
        return last;
    }

    /** How many there were. */
    public long count()
    {
        return count;
    }
}

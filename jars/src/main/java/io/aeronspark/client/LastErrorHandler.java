package io.aeronspark.client;

import org.agrona.ErrorHandler;

/**
 * Keeps the last error that an Aeron client reported on its own threads. Aeron's default handler ends the process when
 * the driver is gone, and a handler written in Python would need the interpreter's lock on Aeron's conductor thread.
 */
public final class LastErrorHandler implements ErrorHandler
{
    private volatile Throwable last;

    @Override
    public void onError(final Throwable throwable)
    {
        last = throwable;
    }

    /** The last error, or null. Any thread may call it. */
    public Throwable last()
    {
        return last;
    }
}

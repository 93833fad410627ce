package io.aeronspark.client;

import java.util.concurrent.ThreadFactory;

/**
 * Makes daemon threads for Aeron's conductor. At the end of a Python program JPype waits for all other threads of the
 * JVM, and the conductor does not end before its client is closed.
 */
public final class DaemonThreadFactory implements ThreadFactory
{
    @Override
    public Thread newThread(final Runnable runnable)
    {
        final Thread thread = new Thread(runnable);
        thread.setDaemon(true);
        return thread;
    }
}

package io.aeronspark.client;

import java.util.concurrent.ThreadFactory;

/**
 * Threads that do not keep a JVM alive: at a Python program's end JPype waits for every other thread, and Aeron's conductor never ends
 * by itself. What is open is closed by {@link CloseOnExit} all the same.
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

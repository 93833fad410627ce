package io.aeronspark.spark.archive;

import io.aeronspark.client.DaemonThreadFactory;
import io.aeronspark.spark.error.TransportError;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import org.agrona.LangUtil;

/**
 * The thread that makes all calls of one Aeron client that wait for a driver or an archive. No thread interrupts it: an
 * interrupt during such a call would close the client, with the resources of all other queries.
 * <p>
 * Each call has its own timeout, so that each wait for one ends. Thread-safe.
 */
final class Commands
{
    /** Between two idle turns of a waiting thread, in which a killed task ends. */
    private static final long TURN_MS = 50;

    /** For the end of calls when the JVM ends. */
    private static final long END_MS = 1_000;

    private final ScheduledExecutorService executor =
        Executors.newSingleThreadScheduledExecutor(new DaemonThreadFactory());

    /**
     * Return the result of a call. If the caller does not wait for it any more, {@code discard} gets it later.
     *
     * @param onTurn is called about 20 times a second during the wait, and ends it by an exception.
     * @throws UncheckedIOException with an InterruptedIOException, by which Spark recognises an interrupt.
     */
    <T> T call(final Callable<T> command, final Consumer<? super T> discard, final Runnable onTurn)
    {
        final CompletableFuture<T> result = new CompletableFuture<>();
        submit(() ->
        {
            try
            {
                final T value = command.call();
                if (!result.complete(value))
                {
                    discard.accept(value);
                }
            }
            catch (final Throwable ex)
            {
                result.completeExceptionally(ex);
            }
        });
        return await(result, discard, onTurn);
    }

    /**
     * Execute a command without a result, such as a close. Its failure is that of the client or the session, which the
     * next call reports; after the end of this thread there is nothing left to close.
     */
    void execute(final Runnable command)
    {
        try
        {
            executor.execute(withoutFailure(command));
        }
        catch (final RejectedExecutionException ignored)
        {
            // The client is closed.
        }
    }

    /** Repeat a command without a result until the end of the thread. */
    void repeat(final Runnable command, final long intervalNs)
    {
        executor.scheduleWithFixedDelay(withoutFailure(command), intervalNs, intervalNs, TimeUnit.NANOSECONDS);
    }

    private static Runnable withoutFailure(final Runnable command)
    {
        return () ->
        {
            try
            {
                command.run();
            }
            catch (final RuntimeException ignored)
            {
                // The next call reports it.
            }
        };
    }

    private void submit(final Runnable command)
    {
        try
        {
            executor.execute(command);
        }
        catch (final RejectedExecutionException ex)
        {
            throw new TransportError(
                "the Aeron client of this process was closed, because its media driver was replaced", "Try again.", ex);
        }
    }

    /** Let the thread end after the calls that it has now. */
    void shutdown()
    {
        executor.shutdown();
    }

    /** Wait for the end of the thread, at the end of the JVM: a driver that does not answer must not delay that. */
    void awaitEnd()
    {
        try
        {
            executor.awaitTermination(END_MS, TimeUnit.MILLISECONDS);
        }
        catch (final InterruptedException ignored)
        {
            Thread.currentThread().interrupt();
        }
    }

    private <T> T await(
        final CompletableFuture<T> result, final Consumer<? super T> discard, final Runnable onTurn)
    {
        try
        {
            while (true)
            {
                try
                {
                    return result.get(TURN_MS, TimeUnit.MILLISECONDS);
                }
                catch (final TimeoutException ignored)
                {
                    onTurn.run();
                }
            }
        }
        catch (final ExecutionException ex)
        {
            LangUtil.rethrowUnchecked(ex.getCause());
            throw new IllegalStateException(ex);
        }
        catch (final InterruptedException ex)
        {
            abandon(result, discard);
            Thread.currentThread().interrupt();
            final InterruptedIOException cause = new InterruptedIOException("interrupted");
            cause.initCause(ex);
            throw new UncheckedIOException(cause);
        }
        catch (final RuntimeException ex)
        {
            abandon(result, discard);
            throw ex;
        }
    }

    private <T> void abandon(final CompletableFuture<T> result, final Consumer<? super T> discard)
    {
        if (!result.cancel(false) && !result.isCompletedExceptionally())
        {
            execute(() -> discard.accept(result.join()));
        }
    }
}

package io.aeronspark.spark.archive;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeronspark.spark.error.TransportError;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class CommandsTest
{
    private static final Runnable NO_TURN = () ->
    {
    };

    private final Commands commands = new Commands();
    private final CountDownLatch isStarted = new CountDownLatch(1);
    private final CountDownLatch mayEnd = new CountDownLatch(1);
    private final CompletableFuture<String> discarded = new CompletableFuture<>();

    @AfterEach
    void end()
    {
        mayEnd.countDown();
        commands.shutdown();
        commands.awaitEnd();
    }

    private String answer() throws InterruptedException
    {
        isStarted.countDown();
        mayEnd.await();
        return Thread.currentThread().isInterrupted() ? "interrupted" : "late";
    }

    @Test
    void shouldReturnResultsAndThrowErrorsAsTheyAre()
    {
        assertEquals(7, commands.call(() -> 7, (late) ->
        {
        }, NO_TURN));
        final IllegalStateException error = new IllegalStateException("x");
        assertSame(error, assertThrows(IllegalStateException.class, () -> commands.call(() ->
        {
            throw error;
        }, (late) ->
        {
        }, NO_TURN)));
    }

    @Test
    void shouldNotInterruptACallWhoseCallerIsInterruptedAndDiscardItsResult() throws Exception
    {
        final AtomicReference<Throwable> failure = new AtomicReference<>();
        final Thread caller = new Thread(() ->
        {
            try
            {
                commands.call(this::answer, discarded::complete, NO_TURN);
            }
            catch (final Throwable ex)
            {
                failure.set(ex);
            }
        });
        caller.start();
        isStarted.await();
        caller.interrupt();
        caller.join();
        assertInstanceOf(InterruptedIOException.class, ((UncheckedIOException)failure.get()).getCause());
        assertFalse(discarded.isDone());
        mayEnd.countDown();
        assertEquals("late", discarded.get(10, TimeUnit.SECONDS));
    }

    @Test
    void shouldEndTheWaitOfAKilledTask() throws Exception
    {
        final IllegalStateException killed = new IllegalStateException("killed");
        assertSame(killed, assertThrows(
            IllegalStateException.class,
            () -> commands.call(this::answer, discarded::complete, () ->
            {
                throw killed;
            })));
        mayEnd.countDown();
        assertEquals("late", discarded.get(10, TimeUnit.SECONDS));
    }

    @Test
    void shouldRefuseCallsAfterTheEndAndIgnoreCommandsWithoutAResult()
    {
        commands.shutdown();
        commands.execute(() -> discarded.complete("executed"));
        final TransportError error = assertThrows(TransportError.class, () -> commands.call(() -> 7, (late) ->
        {
        }, NO_TURN));
        assertTrue(error.getMessage().contains("was closed"));
        assertFalse(discarded.isDone());
    }

    @Test
    void shouldGoOnAfterACommandThatFails() throws Exception
    {
        commands.execute(() ->
        {
            throw new IllegalStateException("x");
        });
        commands.execute(() -> discarded.complete("executed"));
        assertEquals("executed", discarded.get(10, TimeUnit.SECONDS));
    }
}

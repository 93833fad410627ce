package io.aeronspark.driver;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.aeron.driver.MediaDriver;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class HandshakeTimeoutsTest
{
    private static final long MS = TimeUnit.MILLISECONDS.toNanos(1);
    private final HandshakeTimeouts timeouts = new HandshakeTimeouts();

    private static MediaDriver.Context context(final long statusMessageMs, final long imageLivenessMs)
    {
        return new MediaDriver.Context()
            .statusMessageTimeoutNs(statusMessageMs * MS).imageLivenessTimeoutNs(imageLivenessMs * MS);
    }

    private static void assertTimeouts(
        final long statusMessageMs, final long imageLivenessMs, final MediaDriver.Context context)
    {
        assertEquals(statusMessageMs * MS, context.statusMessageTimeoutNs());
        assertEquals(imageLivenessMs * MS, context.imageLivenessTimeoutNs());
    }

    @Test
    void shortensTheTimeoutsForHandshakesAndRestoresThemForOtherStreams()
    {
        final MediaDriver.Context context = context(200, 10_000);
        timeouts.setTimeouts(HandshakeStream.ID, context);
        assertTimeouts(4, 1_000, context);
        timeouts.setTimeouts(1001, context);
        assertTimeouts(200, 10_000, context);
        timeouts.setTimeouts(HandshakeStream.ID, context);
        assertTimeouts(4, 1_000, context);
    }

    @Test
    void keepsShorterTimeoutsOfTheDriver()
    {
        final MediaDriver.Context context = context(1, 500);
        timeouts.setTimeouts(HandshakeStream.ID, context);
        assertTimeouts(1, 500, context);
    }

    @Test
    void tellsTheTimeoutOfTheSettingsAfterAHandshake()
    {
        final MediaDriver.Context context = context(200, 10_000).congestControlSupplier(timeouts);
        assertEquals(10_000 * MS, HandshakeTimeouts.usualImageLivenessTimeoutNs(context));
        timeouts.setTimeouts(HandshakeStream.ID, context);
        assertEquals(10_000 * MS, HandshakeTimeouts.usualImageLivenessTimeoutNs(context));
    }

    @Test
    void tellsTheTimeoutOfADriverThatDoesNotUseIt()
    {
        assertEquals(500 * MS, HandshakeTimeouts.usualImageLivenessTimeoutNs(context(200, 500)));
    }
}

package io.aeronspark.inbox;

import io.aeron.ExclusivePublication;
import io.aeron.exceptions.RegistrationException;
import java.util.function.LongFunction;

/**
 * A publication that a program has asked the driver for: the driver makes it or refuses it, and then a subscriber
 * connects. It keeps the driver's refusal, because Aeron's client reports it only once.
 * <p>
 * Thread-safe.
 */
final class PendingPublication
{
    private final long registrationId;
    private final LongFunction<ExclusivePublication> client;
    private volatile boolean isDone;

    private ExclusivePublication publication;
    private RegistrationException refusal;
    private boolean isResponseReported;

    /** {@code client} returns the publication, or null until the driver has made it, and throws its refusal once. */
    PendingPublication(final long registrationId, final LongFunction<ExclusivePublication> client)
    {
        this.registrationId = registrationId;
        this.client = client;
    }

    /** The publication, or null if the driver has not made it. Throws the driver's refusal, each time. */
    synchronized ExclusivePublication publication()
    {
        checkResponse();
        if (refusal != null)
        {
            throw refusal;
        }
        return publication;
    }

    /**
     * Whether the driver has responded, or a subscriber has connected, since the last call. After a refusal, a
     * connection or the end of the publication it is done.
     */
    synchronized boolean hasProgress()
    {
        if (!isResponseReported)
        {
            checkResponse();
            isResponseReported = publication != null || refusal != null;
            isDone |= refusal != null;
            return isResponseReported;
        }
        final boolean isConnected = publication.isConnected();
        isDone |= isConnected || publication.isClosed();
        return isConnected;
    }

    /** Whether nothing more can happen that a poll should return for. */
    boolean isDone()
    {
        return isDone;
    }

    /** Stop looking for it: the program closes it. */
    void cancel()
    {
        isDone = true;
    }

    private void checkResponse()
    {
        if (publication == null && refusal == null && !isDone)
        {
            try
            {
                publication = client.apply(registrationId);
            }
            catch (final RegistrationException refused)
            {
                refusal = refused;
            }
        }
    }
}

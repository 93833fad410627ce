package io.aeronspark.inbox;

import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.exceptions.RegistrationException;

/**
 * A publication that was asked for beside an {@link Inbox}: made by the driver, or refused, and then heard by somebody. The client tells a
 * refusal once only, so that it is kept here for whoever asks.
 */
final class PendingPublication
{
    final long registrationId;
    volatile boolean over;

    private ExclusivePublication publication;
    private RegistrationException refusal;
    private boolean told;

    PendingPublication(final long registrationId)
    {
        this.registrationId = registrationId;
    }

    /** The publication, or null while the driver has not made it. Throws its refusal. */
    synchronized ExclusivePublication publication(final Aeron aeron)
    {
        settle(aeron);
        if (refusal != null)
        {
            throw refusal;
        }
        return publication;
    }

    /** Whether the driver has answered, or somebody has come, since this was asked last; it is over after the latter. */
    synchronized boolean moved(final Aeron aeron)
    {
        if (!told)
        {
            settle(aeron);
            told = publication != null || refusal != null;
            over |= refusal != null;
            return told;
        }
        final boolean heard = publication.isConnected();
        over |= heard || publication.isClosed();
        return heard;
    }

    private void settle(final Aeron aeron)
    {
        if (publication == null && refusal == null && !over)
        {
            try
            {
                publication = aeron.getExclusivePublication(registrationId);
            }
            catch (final RegistrationException refused)
            {
                refusal = refused;
            }
        }
    }
}

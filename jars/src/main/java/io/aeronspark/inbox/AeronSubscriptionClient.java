package io.aeronspark.inbox;

import io.aeron.Aeron;
import io.aeron.AeronCounters;
import io.aeron.AvailableImageHandler;
import io.aeron.Subscription;
import io.aeron.UnavailableImageHandler;
import org.agrona.concurrent.status.CountersReader;

/** The {@link SubscriptionClient} of a running media driver. Thread-safe, as Aeron's client is. */
final class AeronSubscriptionClient implements SubscriptionClient
{
    private final Aeron aeron;

    AeronSubscriptionClient(final Aeron aeron)
    {
        this.aeron = aeron;
    }

    @Override
    public long open(
        final String channel,
        final int streamId,
        final AvailableImageHandler onAvailable,
        final UnavailableImageHandler onUnavailable)
    {
        return aeron.asyncAddSubscription(channel, streamId, onAvailable, onUnavailable);
    }

    @Override
    public Subscription find(final long registrationId)
    {
        return aeron.getSubscription(registrationId);
    }

    /** The driver has an image before the client: its counter shows it, and the image can already hold a message. */
    @Override
    public boolean hasImage(final Subscription subscription)
    {
        return !subscription.hasNoImages() ||
            CountersReader.NULL_COUNTER_ID != aeron.countersReader().findByTypeIdAndRegistrationId(
                AeronCounters.DRIVER_SUBSCRIBER_POSITION_TYPE_ID, subscription.registrationId());
    }

    /** A client that is closed has closed its subscriptions, and refuses the command. */
    @Override
    public void close(final Subscription subscription)
    {
        if (!aeron.isClosed())
        {
            subscription.close();
        }
    }

    @Override
    public void cancel(final long registrationId)
    {
        if (!aeron.isClosed())
        {
            aeron.asyncRemoveSubscription(registrationId);
        }
    }
}

package io.aeronspark.inbox;

import io.aeron.AvailableImageHandler;
import io.aeron.Subscription;
import io.aeron.UnavailableImageHandler;

/** The part of an Aeron client that an {@link InboxSubscription} uses. No method waits for the driver. */
interface SubscriptionClient
{
    /** Send the driver the command to open a subscription; return its registration id. */
    long open(String channel, int streamId, AvailableImageHandler onAvailable, UnavailableImageHandler onUnavailable);

    /**
     * The subscription, or null if the driver has not opened it.
     *
     * @throws io.aeron.exceptions.RegistrationException if the driver has refused it; only the first call throws it.
     */
    Subscription find(long registrationId);

    /** Whether the subscription has an image, or the driver has one for it that the client does not know yet. */
    boolean hasImage(Subscription subscription);

    /** Close a subscription that the driver has opened. */
    void close(Subscription subscription);

    /** Close a subscription that the driver may not have opened yet. */
    void cancel(long registrationId);
}

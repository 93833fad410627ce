package io.aeronspark.inbox;

import io.aeron.Aeron;
import io.aeron.AvailableImageHandler;
import io.aeron.Image;
import io.aeron.Subscription;
import io.aeron.UnavailableImageHandler;
import io.aeron.exceptions.RegistrationException;
import java.util.ArrayList;
import java.util.List;

/**
 * One subscription of an {@link Inbox} and its images.
 * <p>
 * Opening, closing and the driver's response are guarded by the lock of this object, so that any thread may ask for the
 * subscription or close it. The lock may be held while Aeron's client takes its own, and never the other way round: the
 * handlers of images, which Aeron calls under its lock, only add to {@link InboxEvents}. Images are used by the polling
 * thread alone.
 */
final class InboxSubscription implements AvailableImageHandler, UnavailableImageHandler
{
    final int token;
    volatile boolean isPaused;
    private volatile boolean isClosed;
    private volatile long registrationId;
    private volatile Subscription subscription;
    private volatile String refusal;

    private final SubscriptionClient client;
    private final InboxEvents events;
    private final InboxRecords records;
    private final String channel;
    private final int streamId;
    private final int maxMessageLength;
    private final boolean unfragmentedOnly;
    private final ReopenTimer reopenTimer;
    /** Registration id of the last subscription that was closed to open another one. */
    private long replacedId = Aeron.NULL_VALUE;
    private final List<ImageMessages> images = new ArrayList<>();
    private int next;

    /**
     * @param token            by which the program names the subscription.
     * @param maxMessageLength in bytes; longer messages are dropped and counted.
     * @param unfragmentedOnly whether messages of several fragments are dropped and counted.
     * @param reopenNs         nanoseconds without an image after which to open the subscription again; 0 for never.
     */
    InboxSubscription(
        final SubscriptionClient client,
        final InboxEvents events,
        final InboxRecords records,
        final int token,
        final String channel,
        final int streamId,
        final int maxMessageLength,
        final boolean unfragmentedOnly,
        final long reopenNs)
    {
        this.client = client;
        this.events = events;
        this.records = records;
        this.token = token;
        this.channel = channel;
        this.streamId = streamId;
        this.maxMessageLength = maxMessageLength;
        this.unfragmentedOnly = unfragmentedOnly;
        reopenTimer = new ReopenTimer(reopenNs);
    }

    /** Send the driver the command to open it at {@code nowNs}. */
    synchronized void open(final long nowNs)
    {
        reopenTimer.onOpen(nowNs);
        registrationId = client.open(channel, streamId, this, this);
    }

    long registrationId()
    {
        return registrationId;
    }

    boolean isClosed()
    {
        return isClosed;
    }

    /** Aeron's subscription, or null if the driver has not opened it. */
    Subscription subscription()
    {
        checkResponse();
        return subscription;
    }

    /**
     * Why the driver refused it, or null. The reason is kept, because Aeron's client reports a refusal only once, and
     * any thread can be the one that meets it.
     */
    String refusal()
    {
        checkResponse();
        return refusal;
    }

    private synchronized void checkResponse()
    {
        if (subscription == null && refusal == null && !isClosed)
        {
            try
            {
                subscription = client.find(registrationId);
            }
            catch (final RegistrationException refused)
            {
                refusal = refused.getMessage();
            }
        }
    }

    /** Whether the driver has responded, and the subscription will not be opened again. */
    boolean isSettled()
    {
        return subscription != null && (!reopenTimer.isEnabled() || !images.isEmpty());
    }

    /** Open the subscription again if it is time and the publisher has not responded. On the polling thread. */
    synchronized void reopenIfDue(final long nowNs)
    {
        if (subscription == null || isClosed || !reopenTimer.isEnabled())
        {
            return;
        }
        reopenTimer.onResponse(nowNs);
        if (images.isEmpty() && reopenTimer.isDue(nowNs) && !client.hasImage(subscription))
        {
            // An image can still be reported until the old subscription is closed; isCurrent leaves it out.
            replacedId = registrationId;
            client.close(subscription);
            subscription = null;
            open(nowNs);
        }
    }

    /** Whether an image is of the subscription that is open now, and not of one that it replaced. */
    boolean isCurrent(final Image image)
    {
        return image.subscription().registrationId() > replacedId;
    }

    /** Close the subscription, or leave it closed after a refusal. */
    synchronized void close()
    {
        isClosed = true;
        if (subscription != null)
        {
            client.close(subscription);
        }
        else if (refusal == null)
        {
            client.cancel(registrationId);
        }
    }

    @Override
    public void onAvailableImage(final Image image)
    {
        events.add(new InboxEvent(
            InboxRecords.IMAGE_AVAILABLE, this, image, image.sessionId(), image.sourceIdentity()));
    }

    @Override
    public void onUnavailableImage(final Image image)
    {
        events.add(new InboxEvent(InboxRecords.IMAGE_UNAVAILABLE, this, image, image.sessionId(), ""));
    }

    void addImage(final Image image)
    {
        images.add(new ImageMessages(image, token, maxMessageLength, unfragmentedOnly, records));
    }

    void removeImage(final Image image)
    {
        images.removeIf(one -> one.image == image);
    }

    /** Write the messages of all images as records; return whether the records have no room for the next message. */
    boolean poll()
    {
        final int count = images.size();
        for (int i = 0; i < count; i++)
        {
            next = next + 1 >= count ? 0 : next + 1;
            if (images.get(next).poll())
            {
                return true;
            }
        }
        return false;
    }

    /** Whether a poll would find something. */
    boolean hasMore()
    {
        for (int i = 0, count = images.size(); i < count; i++)
        {
            if (images.get(i).hasMore())
            {
                return true;
            }
        }
        return false;
    }
}

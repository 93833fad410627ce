package io.aeronspark.inbox;

import io.aeron.Aeron;
import io.aeron.AeronCounters;
import io.aeron.AvailableImageHandler;
import io.aeron.Image;
import io.aeron.Subscription;
import io.aeron.UnavailableImageHandler;
import io.aeron.exceptions.RegistrationException;
import java.util.ArrayList;
import java.util.List;
import org.agrona.concurrent.status.CountersReader;

/**
 * One subscription of an {@link Inbox} and its images. The polling thread uses it; other threads only read and write the
 * volatile fields. Aeron's conductor thread reports images to the {@link InboxEvents}, which hand them to the polling
 * thread in order.
 */
final class InboxSubscription implements AvailableImageHandler, UnavailableImageHandler
{
    final int token;
    volatile boolean isPaused;
    volatile boolean isClosed;
    private volatile long registrationId;
    private volatile Subscription subscription;

    private final Aeron aeron;
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
        final Aeron aeron,
        final InboxEvents events,
        final InboxRecords records,
        final int token,
        final String channel,
        final int streamId,
        final int maxMessageLength,
        final boolean unfragmentedOnly,
        final long reopenNs)
    {
        this.aeron = aeron;
        this.events = events;
        this.records = records;
        this.token = token;
        this.channel = channel;
        this.streamId = streamId;
        this.maxMessageLength = maxMessageLength;
        this.unfragmentedOnly = unfragmentedOnly;
        reopenTimer = new ReopenTimer(reopenNs);
    }

    /** Send the driver the command to open it, without waiting. */
    void open()
    {
        reopenTimer.onOpen(System.nanoTime());
        registrationId = aeron.asyncAddSubscription(channel, streamId, this, this);
    }

    long registrationId()
    {
        return registrationId;
    }

    /** Aeron's subscription, or null if the driver has not opened it. */
    Subscription subscription()
    {
        return subscription;
    }

    /** Look for the driver's response; return the reason if it refused, otherwise null. */
    String checkResponse()
    {
        if (subscription == null && !isClosed)
        {
            try
            {
                subscription = aeron.getSubscription(registrationId);
            }
            catch (final RegistrationException refused)
            {
                return refused.getMessage();
            }
        }
        return null;
    }

    /** Whether the driver has responded, and the subscription will not be opened again. */
    boolean isSettled()
    {
        return subscription != null && (!reopenTimer.isEnabled() || !images.isEmpty());
    }

    /** Open the subscription again if it is time and the publisher has not responded. On the polling thread. */
    void reopenIfDue(final long nowNs)
    {
        if (subscription == null || !reopenTimer.isEnabled())
        {
            return;
        }
        reopenTimer.onResponse(nowNs);
        if (images.isEmpty() && reopenTimer.isDue(nowNs) && subscription.hasNoImages() && !hasImageInDriver())
        {
            // An image can still be reported until the old subscription is closed; isCurrent leaves it out.
            replacedId = registrationId;
            subscription.close();
            subscription = null;
            open();
        }
    }

    /** The driver has an image before the client has: it can already hold the first message. */
    private boolean hasImageInDriver()
    {
        return CountersReader.NULL_COUNTER_ID != aeron.countersReader().findByTypeIdAndRegistrationId(
            AeronCounters.DRIVER_SUBSCRIBER_POSITION_TYPE_ID, registrationId);
    }

    /** Whether an image is of the subscription that is open now, and not of one that it replaced. */
    boolean isCurrent(final Image image)
    {
        return image.subscription().registrationId() > replacedId;
    }

    /** Close the subscription, without waiting for the driver. */
    void close()
    {
        isClosed = true;
        if (aeron.isClosed())
        {
            return;
        }
        final Subscription open = subscription;
        if (open != null)
        {
            open.close();
        }
        else
        {
            aeron.asyncRemoveSubscription(registrationId);
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

package io.aeronspark.inbox;

import static io.aeron.logbuffer.FrameDescriptor.BEGIN_FRAG_FLAG;
import static io.aeron.logbuffer.FrameDescriptor.END_FRAG_FLAG;
import static io.aeron.logbuffer.FrameDescriptor.UNFRAGMENTED;

import io.aeron.Aeron;
import io.aeron.AeronCounters;
import io.aeron.AvailableImageHandler;
import io.aeron.Image;
import io.aeron.Subscription;
import io.aeron.UnavailableImageHandler;
import io.aeron.exceptions.RegistrationException;
import io.aeron.logbuffer.ControlledFragmentHandler;
import io.aeron.logbuffer.Header;
import java.util.ArrayList;
import java.util.List;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.CountersReader;

/**
 * One subscription of an {@link Inbox}, and the messages of its images, put together. Only the flags are for other threads than the one
 * that polls; images come and go through the inbox's queue, in their order.
 */
final class InboxSubscription implements ControlledFragmentHandler, AvailableImageHandler, UnavailableImageHandler
{
    /** Fragments of one image taken in one go, so that no sender keeps the others waiting. */
    private static final int FRAGMENTS_AT_ONCE = 512;
    /** An image may take this many times as long as the driver's response to the subscription. */
    private static final int IMAGE_PER_RESPONSE = 4;

    final int token;
    volatile boolean paused;
    volatile boolean closed;
    volatile long registrationId;
    private volatile Subscription subscription;

    private final Inbox inbox;
    private final String channel;
    private final int streamId;
    private final int maxMessage;
    private final boolean wholeOnly;
    private final long againNs;
    private long openedAt;
    private long againAt;
    private long givenUp = Aeron.NULL_VALUE;
    private final List<Sender> senders = new ArrayList<>();
    private Sender current;
    private int next;
    private boolean full;

    /** An image, and its message under way: in the records' free memory while one poll lasts, kept aside from then on. */
    private static final class Sender implements ControlledFragmentHandler
    {
        final Image image;
        private boolean seen;
        UnsafeBuffer kept;
        int length;
        boolean assembling;
        boolean aside;

        Sender(final Image image)
        {
            this.image = image;
        }

        boolean hasMore()
        {
            final long position = image.position();
            return image.controlledPeek(position, this, Long.MAX_VALUE) != position || seen();
        }

        @Override
        public Action onFragment(final DirectBuffer buffer, final int offset, final int length, final Header header)
        {
            seen = true;
            return Action.ABORT;
        }

        private boolean seen()
        {
            final boolean was = seen;
            seen = false;
            return was;
        }
    }

    /**
     * @param wholeOnly whether fragmented messages are dropped unread.
     * @param againNs   after how long without an image the subscription is made anew, which asks the publisher once more; 0 for never.
     *                  The pause is longer where the driver responds slowly: a subscription that is made again before the driver could
     *                  create its image starts the set-up from the beginning.
     */
    InboxSubscription(
        final Inbox inbox,
        final int token,
        final String channel,
        final int streamId,
        final int maxMessage,
        final boolean wholeOnly,
        final long againNs)
    {
        this.inbox = inbox;
        this.token = token;
        this.channel = channel;
        this.streamId = streamId;
        this.maxMessage = maxMessage;
        this.wholeOnly = wholeOnly;
        this.againNs = againNs;
    }

    void open(final Aeron aeron)
    {
        openedAt = System.nanoTime();
        registrationId = aeron.asyncAddSubscription(channel, streamId, this, this);
    }

    Subscription subscription()
    {
        return subscription;
    }

    /** Look whether the driver has answered; its refusal is returned, else null. */
    String settle(final Aeron aeron)
    {
        if (subscription == null && !closed)
        {
            try
            {
                final Subscription answered = aeron.getSubscription(registrationId);
                if (answered != null)
                {
                    final long now = System.nanoTime();
                    againAt = now + Math.max(againNs, IMAGE_PER_RESPONSE * (now - openedAt));
                    subscription = answered;
                }
            }
            catch (final RegistrationException refused)
            {
                return refused.getMessage();
            }
        }
        return null;
    }

    /** Whether the driver has answered, and nobody need be asked again. */
    boolean settled()
    {
        return subscription != null && (againNs == 0 || !senders.isEmpty());
    }

    /** Whether a poll would find something. */
    boolean hasMore()
    {
        for (int i = 0, count = senders.size(); i < count; i++)
        {
            if (senders.get(i).hasMore())
            {
                return true;
            }
        }
        return false;
    }

    /** Ask once more where the publisher was not there, or did not hear. */
    void ask(final Aeron aeron, final long now)
    {
        // an image that has just come may hold the first message already, and is the driver's before it is the client's
        if (againNs > 0 && senders.isEmpty() && subscription != null && now - againAt > 0 && subscription.hasNoImages() &&
            aeron.countersReader().findByTypeIdAndRegistrationId(
                AeronCounters.DRIVER_SUBSCRIBER_POSITION_TYPE_ID, registrationId) == CountersReader.NULL_COUNTER_ID)
        {
            // An image may still come until the subscription is closed. It leaves at once, and nobody hears of it.
            givenUp = registrationId;
            subscription.close();
            subscription = null;
            open(aeron);
        }
    }

    /** Whether an image is of the subscription that is open, and not of one that was given up to ask again. */
    boolean has(final Image image)
    {
        return image.subscription().registrationId() > givenUp;
    }

    void close(final Aeron aeron)
    {
        closed = true;
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
        inbox.tell(new Inbox.News(InboxRecords.JOINED, this, image, image.sessionId(), image.sourceIdentity()));
    }

    @Override
    public void onUnavailableImage(final Image image)
    {
        inbox.tell(new Inbox.News(InboxRecords.LEFT, this, image, image.sessionId(), ""));
    }

    void joined(final Image image)
    {
        senders.add(new Sender(image));
    }

    void left(final Image image)
    {
        senders.removeIf(sender -> sender.image == image);
    }

    /** Move what has come; whether the records are full. */
    boolean poll(final InboxRecords records)
    {
        final int count = senders.size();
        full = false;
        for (int i = 0; i < count && !full; i++)
        {
            next = next + 1 >= count ? 0 : next + 1;
            current = senders.get(next);
            current.image.controlledPoll(this, FRAGMENTS_AT_ONCE);
            putAside(records, current);
        }
        return full;
    }

    @Override
    public Action onFragment(final DirectBuffer buffer, final int offset, final int length, final Header header)
    {
        final InboxRecords records = inbox.records();
        final byte flags = header.flags();
        final Sender sender = current;
        if ((flags & UNFRAGMENTED) == UNFRAGMENTED)
        {
            if (length > maxMessage)
            {
                inbox.drop();
                return Action.CONTINUE;
            }
            if (!records.hasRoomFor(length))
            {
                return stop();
            }
            sender.assembling = false;
            records.put(0, buffer, offset, length);
            records.add(InboxRecords.ARRIVED, token, sender.image.correlationId(), sender.image.sessionId(), length);
            return Action.CONTINUE;
        }
        return wholeOnly ? dropFragment(flags) : append(records, sender, flags, buffer, offset, length);
    }

    private Action dropFragment(final byte flags)
    {
        if ((flags & BEGIN_FRAG_FLAG) != 0)
        {
            inbox.drop();
        }
        return Action.CONTINUE;
    }

    private Action append(
        final InboxRecords records,
        final Sender sender,
        final byte flags,
        final DirectBuffer buffer,
        final int offset,
        final int length)
    {
        final boolean begins = (flags & BEGIN_FRAG_FLAG) != 0;
        final boolean ends = (flags & END_FRAG_FLAG) != 0;
        final boolean aside = sender.aside && !begins;
        final int before = begins ? 0 : sender.length;
        if (!begins && !sender.assembling)
        {
            return Action.CONTINUE;
        }
        if (before + length > maxMessage)
        {
            inbox.drop();
            sender.assembling = false;
            sender.aside = false;
            return Action.CONTINUE;
        }
        if ((!aside || ends) && !records.hasRoomFor(before + length))
        {
            return stop();
        }
        sender.assembling = !ends;
        sender.aside = aside && !ends;
        sender.length = before + length;
        if (aside)
        {
            keep(sender, before + length);
            sender.kept.putBytes(before, buffer, offset, length);
        }
        else
        {
            records.put(before, buffer, offset, length);
        }
        if (ends)
        {
            if (aside)
            {
                records.put(0, sender.kept, 0, sender.length);
            }
            records.add(InboxRecords.ARRIVED, token, sender.image.correlationId(), sender.image.sessionId(), sender.length);
        }
        return Action.CONTINUE;
    }

    private Action stop()
    {
        full = true;
        return Action.ABORT;
    }

    private void putAside(final InboxRecords records, final Sender sender)
    {
        if (sender.assembling && !sender.aside)
        {
            keep(sender, sender.length);
            records.get(sender.kept, sender.length);
            sender.aside = true;
        }
    }

    private void keep(final Sender sender, final int length)
    {
        if (sender.kept == null || sender.kept.capacity() < length)
        {
            final UnsafeBuffer larger = new UnsafeBuffer(new byte[Math.min(maxMessage, Math.max(2 * length, 4096))]);
            if (sender.kept != null)
            {
                larger.putBytes(0, sender.kept, 0, sender.kept.capacity());
            }
            sender.kept = larger;
        }
    }
}

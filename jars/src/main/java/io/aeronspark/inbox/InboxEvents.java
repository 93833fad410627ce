package io.aeronspark.inbox;

import io.aeron.Image;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;

/**
 * Events of an inbox's subscriptions, from any thread to the polling thread, in order. Images are added to and removed
 * from their subscription when the event is written, so that no message comes before the event of its image.
 */
final class InboxEvents
{
    /** Most events of one poll; the rest of the records' memory is for messages. */
    private static final int MAX_EVENTS_PER_POLL = 256;
    private static final int MAX_TEXT_CHARS = 1024;
    private static final int MAX_TEXT_BYTES = 3 * MAX_TEXT_CHARS; // in UTF-8

    private final ConcurrentLinkedQueue<InboxEvent> queue = new ConcurrentLinkedQueue<>();
    /** Images that were reported as available and not yet as unavailable, by their id. */
    private final Map<Long, Image> images = new ConcurrentHashMap<>();

    /** From any thread. */
    void add(final InboxEvent event)
    {
        queue.add(event);
    }

    /** From any thread. */
    boolean isEmpty()
    {
        return queue.isEmpty();
    }

    /** The image with this id, or null. From any thread. */
    Image image(final long imageId)
    {
        return images.get(imageId);
    }

    void forgetImages()
    {
        images.clear();
    }

    /** Write the events as records, as many as have room. On the polling thread. */
    void writeTo(final InboxRecords records)
    {
        for (int i = 0; i < MAX_EVENTS_PER_POLL && records.hasRoomFor(MAX_TEXT_BYTES); i++)
        {
            final InboxEvent event = queue.poll();
            if (event == null)
            {
                return;
            }
            if (event.image() == null || event.subscription().isCurrent(event.image()))
            {
                write(event, records);
            }
        }
    }

    private void write(final InboxEvent event, final InboxRecords records)
    {
        final InboxSubscription subscription = event.subscription();
        final Image image = event.image();
        final long imageId = image == null ? 0 : image.correlationId();
        int kind = event.kind();
        if (kind == InboxRecords.IMAGE_AVAILABLE)
        {
            subscription.addImage(image);
            images.put(imageId, image);
            if (image.joinPosition() > 0)
            {
                kind = InboxRecords.IMAGE_AVAILABLE_LATE;
            }
        }
        else if (kind == InboxRecords.IMAGE_UNAVAILABLE)
        {
            subscription.removeImage(image);
            images.remove(imageId);
        }
        if (!subscription.isClosed() || kind == InboxRecords.SUBSCRIPTION_FAILED)
        {
            final String text = event.text();
            records.add(
                kind,
                subscription.token,
                imageId,
                event.sessionId(),
                text.length() > MAX_TEXT_CHARS ? text.substring(0, MAX_TEXT_CHARS) : text);
        }
    }
}

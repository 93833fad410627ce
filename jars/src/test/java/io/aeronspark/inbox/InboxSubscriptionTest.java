package io.aeronspark.inbox;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeron.AvailableImageHandler;
import io.aeron.ErrorCode;
import io.aeron.Image;
import io.aeron.LogBufferOnDisk;
import io.aeron.Subscription;
import io.aeron.UnavailableImageHandler;
import io.aeron.exceptions.RegistrationException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** {@link InboxSubscription}, {@link PolledSubscriptions} and {@link InboxEvents} with a fake client. */
class InboxSubscriptionTest
{
    private static final int TOKEN = 5;
    private static final long MS = 1_000_000;
    private static final long REOPEN_NS = 300 * MS;

    @TempDir
    Path folder;
    private LogBufferOnDisk log;
    private final FakeClient client = new FakeClient();
    private final InboxEvents events = new InboxEvents();
    private final InboxRecords records = new InboxRecords(1 << 16);
    private final PolledSubscriptions subscriptions = new PolledSubscriptions();
    private long nowNs = 1_000 * MS;

    /** A client whose driver does what the test says. Registration ids count from 1. */
    private static final class FakeClient implements SubscriptionClient
    {
        long lastId;
        boolean isSlow;
        RegistrationException refusal;
        boolean hasImage;
        final List<String> closed = new ArrayList<>();

        @Override
        public long open(
            final String channel,
            final int streamId,
            final AvailableImageHandler onAvailable,
            final UnavailableImageHandler onUnavailable)
        {
            return ++lastId;
        }

        @Override
        public Subscription find(final long registrationId)
        {
            if (refusal != null)
            {
                final RegistrationException once = refusal;
                refusal = null;
                isSlow = true;
                throw once;
            }
            return isSlow ? null : LogBufferOnDisk.newSubscription(registrationId);
        }

        @Override
        public boolean hasImage(final Subscription subscription)
        {
            return hasImage;
        }

        @Override
        public void close(final Subscription subscription)
        {
            closed.add("closed " + subscription.registrationId());
        }

        @Override
        public void cancel(final long registrationId)
        {
            closed.add("cancelled " + registrationId);
        }
    }

    @BeforeEach
    void open() throws IOException
    {
        log = new LogBufferOnDisk(folder);
    }

    @AfterEach
    void close()
    {
        log.close();
    }

    private InboxSubscription add(final long reopenNs)
    {
        final InboxSubscription subscription = new InboxSubscription(
            client, events, records, TOKEN, "aeron:ipc", LogBufferOnDisk.STREAM_ID, 1_000, false, reopenNs);
        subscription.open(nowNs);
        subscriptions.add(subscription);
        return subscription;
    }

    /** Poll as an inbox does, some milliseconds later; return the kinds of the records. */
    private List<Integer> pollAfter(final long ms)
    {
        nowNs += ms * MS;
        records.clear();
        subscriptions.update();
        subscriptions.checkResponses(nowNs, events);
        events.writeTo(records);
        subscriptions.poll();
        final ByteBuffer memory = records.memory().order(ByteOrder.nativeOrder());
        final List<Integer> kinds = new ArrayList<>();
        for (int at = 0; at < records.used(); at += InboxRecords.sizeOf(memory.getInt(at + 16)))
        {
            kinds.add(memory.getInt(at));
        }
        return kinds;
    }

    private void publish(final String message)
    {
        final byte[] bytes = message.getBytes(StandardCharsets.UTF_8);
        assertTrue(log.publication.offer(new UnsafeBuffer(bytes)) > 0);
    }

    @Test
    void reportsARefusalOnceAndRemovesTheSubscription()
    {
        add(0);
        client.refusal = new RegistrationException(1, 1, ErrorCode.INVALID_CHANNEL, "no such channel");
        assertEquals(List.of(InboxRecords.SUBSCRIPTION_FAILED), pollAfter(2));
        assertEquals(List.of(), pollAfter(2));
        assertNull(subscriptions.find(TOKEN));
        assertEquals(List.of(), client.closed);
    }

    @Test
    void reportsARefusalThatAnotherThreadHasMetFirst()
    {
        final InboxSubscription subscription = add(0);
        client.refusal = new RegistrationException(1, 1, ErrorCode.INVALID_CHANNEL, "no such channel");
        assertNull(subscription.subscription());
        assertEquals(List.of(InboxRecords.SUBSCRIPTION_FAILED), pollAfter(2));
    }

    @Test
    void reportsAnImageBeforeItsMessagesAndNoneAfterItIsGone()
    {
        final InboxSubscription subscription = add(0);
        final Image image = log.newImage(1, 9);
        publish("a");
        subscription.onAvailableImage(image);
        assertEquals(List.of(InboxRecords.IMAGE_AVAILABLE, InboxRecords.MESSAGE), pollAfter(2));
        assertEquals(image, events.image(9));
        subscription.onUnavailableImage(image);
        publish("b");
        assertEquals(List.of(InboxRecords.IMAGE_UNAVAILABLE), pollAfter(2));
        assertNull(events.image(9));
    }

    @Test
    void reportsAnImageThatMissedTheFirstMessagesAsLate()
    {
        final InboxSubscription subscription = add(0);
        log.consumed.set(64);
        subscription.onAvailableImage(log.newImage(1, 9));
        assertEquals(List.of(InboxRecords.IMAGE_AVAILABLE_LATE), pollAfter(2));
    }

    @Test
    void takesNoMessagesWhilePaused()
    {
        final InboxSubscription subscription = add(0);
        subscription.onAvailableImage(log.newImage(1, 9));
        pollAfter(2);
        publish("a");
        subscription.isPaused = true;
        assertEquals(List.of(), pollAfter(2));
        assertFalse(subscriptions.hasMore());
        subscription.isPaused = false;
        assertTrue(subscriptions.hasMore());
        assertEquals(List.of(InboxRecords.MESSAGE), pollAfter(2));
    }

    @Test
    void opensASubscriptionAgainThatHasNoImage()
    {
        final InboxSubscription subscription = add(REOPEN_NS);
        pollAfter(2);
        pollAfter(300);
        assertEquals(1, subscription.registrationId());
        assertFalse(subscriptions.areSettled());
        pollAfter(10);
        assertEquals(2, subscription.registrationId());
        assertEquals(List.of("closed 1"), client.closed);
        assertNotNull(subscription.subscription());
    }

    @Test
    void leavesOutAnImageOfASubscriptionThatItReplaced()
    {
        final InboxSubscription subscription = add(REOPEN_NS);
        pollAfter(2);
        pollAfter(310);
        subscription.onAvailableImage(log.newImage(1, 9));
        assertEquals(List.of(), pollAfter(2));
        subscription.onAvailableImage(log.newImage(2, 10));
        assertEquals(List.of(InboxRecords.IMAGE_AVAILABLE), pollAfter(2));
        assertTrue(subscriptions.areSettled());
    }

    @Test
    void keepsASubscriptionThatHasAnImage()
    {
        final InboxSubscription subscription = add(REOPEN_NS);
        pollAfter(2);
        client.hasImage = true; // the driver has it, and the client has not reported it yet
        pollAfter(1_000);
        assertEquals(1, subscription.registrationId());
        client.hasImage = false;
        subscription.onAvailableImage(log.newImage(1, 9));
        events.writeTo(records);
        pollAfter(1_000);
        assertEquals(1, subscription.registrationId());
    }

    @Test
    void closesASubscriptionWhetherOrNotTheDriverHasOpenedIt()
    {
        add(REOPEN_NS);
        client.isSlow = true;
        pollAfter(2);
        subscriptions.remove(TOKEN);
        client.isSlow = false;
        final InboxSubscription opened = add(REOPEN_NS);
        pollAfter(2);
        subscriptions.removeAll();
        assertEquals(List.of("cancelled 1", "closed 2"), client.closed);
        opened.reopenIfDue(nowNs + 10_000 * MS);
        assertEquals(2, client.lastId);
    }

    @Test
    void reportsNothingOfAClosedSubscription()
    {
        final InboxSubscription subscription = add(0);
        final Image image = log.newImage(1, 9);
        subscription.onAvailableImage(image);
        pollAfter(2);
        publish("a");
        subscription.onUnavailableImage(image);
        subscriptions.remove(TOKEN);
        assertTrue(subscriptions.hasChanges());
        assertEquals(List.of(), pollAfter(2));
    }
}

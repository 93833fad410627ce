package io.aeronspark.inbox;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeron.LogBufferOnDisk;
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

class ImageMessagesTest
{
    private static final int TOKEN = 5;
    private static final int MAX_MESSAGE_LENGTH = 8_000;
    private static final int FRAGMENTED_LENGTH = 4_000; // three fragments at an MTU of 1,408 bytes

    @TempDir
    Path folder;
    private LogBufferOnDisk log;
    private InboxRecords records;

    @BeforeEach
    void open() throws IOException
    {
        log = new LogBufferOnDisk(folder);
        records = new InboxRecords(1 << 16);
    }

    @AfterEach
    void close()
    {
        log.close();
    }

    private ImageMessages messages(final boolean unfragmentedOnly)
    {
        return new ImageMessages(log.image, TOKEN, MAX_MESSAGE_LENGTH, unfragmentedOnly, records);
    }

    private void publish(final String message)
    {
        final UnsafeBuffer buffer = new UnsafeBuffer(message.getBytes(StandardCharsets.UTF_8));
        assertTrue(log.publication.offer(buffer, 0, buffer.capacity()) > 0);
    }

    /** Payloads of the message records; clears the records. */
    private List<String> takeMessages()
    {
        final ByteBuffer memory = records.memory().order(ByteOrder.nativeOrder());
        final List<String> messages = new ArrayList<>();
        for (int at = 0; at < records.used();)
        {
            final int length = memory.getInt(at + 16);
            final byte[] payload = new byte[length];
            memory.get(at + InboxRecords.HEADER_LENGTH, payload);
            messages.add(new String(payload, StandardCharsets.UTF_8));
            assertEquals(InboxRecords.MESSAGE, memory.getInt(at));
            assertEquals(TOKEN, memory.getInt(at + 4));
            assertEquals(LogBufferOnDisk.IMAGE_ID, memory.getLong(at + 8));
            assertEquals(LogBufferOnDisk.SESSION_ID, memory.getInt(at + 20));
            at += InboxRecords.sizeOf(length);
        }
        records.clear();
        return messages;
    }

    @Test
    void writesMessagesOfOneAndOfSeveralFragments()
    {
        final String large = "b".repeat(FRAGMENTED_LENGTH);
        publish("a");
        publish(large);
        publish("");
        assertFalse(messages(false).poll());
        assertEquals(List.of("a", large, ""), takeMessages());
        assertEquals(0, records.dropped());
    }

    @Test
    void completesAMessageWhoseFragmentsComeInSeveralPolls()
    {
        final String large = "0123456789".repeat(FRAGMENTED_LENGTH / 10);
        final ImageMessages messages = messages(false);
        for (int fragments = 1; fragments <= 3; fragments++)
        {
            log.publishFragments(large, fragments - 1, fragments);
            assertFalse(messages.poll());
            assertEquals(fragments < 3 ? List.of() : List.of(large), takeMessages());
        }
        publish("next");
        messages.poll();
        assertEquals(List.of("next"), takeMessages());
    }

    @Test
    void leavesManySmallMessagesForFurtherPolls()
    {
        final ImageMessages messages = messages(false);
        for (int i = 0; i < 40; i++)
        {
            publish(Integer.toString(i));
        }
        final List<Integer> counts = new ArrayList<>();
        final List<String> all = new ArrayList<>();
        while (messages.hasMore())
        {
            assertFalse(messages.poll()); // the records are not full: other images have their turn in the same poll
            final List<String> taken = takeMessages();
            counts.add(taken.size());
            all.addAll(taken);
        }
        assertEquals(List.of(16, 16, 8), counts);
        assertEquals("39", all.get(39));
    }

    @Test
    void leavesAMessageForTheNextPollIfTheRecordsAreFull()
    {
        records = new InboxRecords(InboxRecords.sizeOf(100) + InboxRecords.sizeOf(96));
        final ImageMessages messages = messages(false);
        final String first = "a".repeat(100);
        final String second = "b".repeat(100);
        publish(first);
        publish(second);
        publish("c");
        assertTrue(messages.poll());
        assertEquals(List.of(first), takeMessages());
        assertFalse(messages.poll());
        assertEquals(List.of(second, "c"), takeMessages());
    }

    @Test
    void leavesTheLastFragmentForTheNextPollIfTheRecordsAreFull()
    {
        final String large = "b".repeat(FRAGMENTED_LENGTH);
        records = new InboxRecords(InboxRecords.sizeOf(FRAGMENTED_LENGTH));
        final ImageMessages messages = messages(false);
        publish("a");
        publish(large);
        assertTrue(messages.poll());
        assertEquals(List.of("a"), takeMessages());
        assertFalse(messages.poll());
        assertEquals(List.of(large), takeMessages());
    }

    @Test
    void dropsAndCountsMessagesThatAreTooLong()
    {
        publish("x".repeat(MAX_MESSAGE_LENGTH + 1));
        publish("a");
        messages(false).poll();
        assertEquals(List.of("a"), takeMessages());
        assertEquals(1, records.dropped());
    }

    @Test
    void dropsAndCountsFragmentedMessagesOnRequest()
    {
        publish("x".repeat(FRAGMENTED_LENGTH));
        publish("a");
        messages(true).poll();
        assertEquals(List.of("a"), takeMessages());
        assertEquals(1, records.dropped());
    }

    @Test
    void ignoresTheRestOfAMessageThatBeganBeforeTheImage()
    {
        log.publishFragments("b".repeat(FRAGMENTED_LENGTH), 1, 3);
        publish("a");
        messages(false).poll();
        assertEquals(List.of("a"), takeMessages());
        assertEquals(0, records.dropped());
    }

    @Test
    void noticesMessagesAndLeavesThem()
    {
        final ImageMessages messages = messages(false);
        assertFalse(messages.hasMore());
        publish("a");
        assertTrue(messages.hasMore());
        assertTrue(messages.hasMore());
        messages.poll();
        assertEquals(List.of("a"), takeMessages());
        assertFalse(messages.hasMore());
    }
}

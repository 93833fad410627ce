package io.aeronspark.inbox;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.Test;

class InboxRecordsTest
{
    @Test
    void writesRecordsInTheDocumentedLayout()
    {
        final InboxRecords records = new InboxRecords(256);
        final UnsafeBuffer payload = new UnsafeBuffer("hello".getBytes(StandardCharsets.UTF_8));
        records.putPayload(0, payload, 0, 2);
        records.putPayload(2, payload, 2, 3); // in two parts, like fragments
        assertEquals(0, records.used());
        records.add(InboxRecords.MESSAGE, 11, 1L << 40, -5, 5);
        records.add(InboxRecords.SUBSCRIPTION_FAILED, 12, -1, 0, "nö");
        final ByteBuffer memory = records.memory().order(ByteOrder.nativeOrder());
        assertEquals(32 + 32, records.used());
        assertEquals(InboxRecords.MESSAGE, memory.getInt(0));
        assertEquals(11, memory.getInt(4));
        assertEquals(1L << 40, memory.getLong(8));
        assertEquals(5, memory.getInt(16));
        assertEquals(-5, memory.getInt(20));
        final byte[] text = new byte[5];
        memory.get(24, text);
        assertArrayEquals("hello".getBytes(StandardCharsets.UTF_8), text);
        assertEquals(InboxRecords.SUBSCRIPTION_FAILED, memory.getInt(32));
        assertEquals(3, memory.getInt(48)); // bytes, not characters
        records.clear();
        assertEquals(0, records.used());
    }

    @Test
    void countsHeaderPayloadAndAlignmentAsRoom()
    {
        final InboxRecords records = new InboxRecords(64);
        assertTrue(records.hasRoomFor(40));
        assertFalse(records.hasRoomFor(41));
        records.add(InboxRecords.IMAGE_UNAVAILABLE, 0, 0, 0, 0);
        assertTrue(records.hasRoomFor(16));
        assertFalse(records.hasRoomFor(17));
        assertEquals(24, InboxRecords.sizeOf(0));
        assertEquals(32, InboxRecords.sizeOf(1));
        assertEquals(32, InboxRecords.sizeOf(8));
    }

    @Test
    void copiesPayloadOutThatIsNotARecordYet()
    {
        final InboxRecords records = new InboxRecords(64);
        records.putPayload(0, new UnsafeBuffer(new byte[]{1, 2, 3}), 0, 3);
        final UnsafeBuffer taken = new UnsafeBuffer(new byte[3]);
        records.getPayload(taken, 3);
        assertArrayEquals(new byte[]{1, 2, 3}, taken.byteArray());
    }
}

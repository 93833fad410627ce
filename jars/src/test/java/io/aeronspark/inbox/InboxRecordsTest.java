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
    void recordsStandOneBehindTheOtherAsTheirTableSays()
    {
        final InboxRecords records = new InboxRecords(256);
        final UnsafeBuffer payload = new UnsafeBuffer("hello".getBytes(StandardCharsets.UTF_8));
        records.put(0, payload, 0, 2);
        records.put(2, payload, 2, 3); // in two parts, as fragments come
        assertEquals(0, records.used());
        records.add(InboxRecords.ARRIVED, 11, 1L << 40, -5, 5);
        records.add(InboxRecords.FAILED, 12, -1, 0, "nö");
        final ByteBuffer memory = records.memory().order(ByteOrder.nativeOrder());
        assertEquals(32 + 32, records.used());
        assertEquals(InboxRecords.ARRIVED, memory.getInt(0));
        assertEquals(11, memory.getInt(4));
        assertEquals(1L << 40, memory.getLong(8));
        assertEquals(5, memory.getInt(16));
        assertEquals(-5, memory.getInt(20));
        final byte[] text = new byte[5];
        memory.get(24, text);
        assertArrayEquals("hello".getBytes(StandardCharsets.UTF_8), text);
        assertEquals(InboxRecords.FAILED, memory.getInt(32));
        assertEquals(3, memory.getInt(48)); // bytes, not letters
        records.clear();
        assertEquals(0, records.used());
    }

    @Test
    void roomIsForHeaderPayloadAndAlignment()
    {
        final InboxRecords records = new InboxRecords(64);
        assertTrue(records.hasRoomFor(40));
        assertFalse(records.hasRoomFor(41));
        records.add(InboxRecords.LEFT, 0, 0, 0, 0);
        assertTrue(records.hasRoomFor(16));
        assertFalse(records.hasRoomFor(17));
        assertEquals(24, InboxRecords.sizeOf(0));
        assertEquals(32, InboxRecords.sizeOf(1));
        assertEquals(32, InboxRecords.sizeOf(8));
    }

    @Test
    void whatWasPutCanBeTakenBack()
    {
        final InboxRecords records = new InboxRecords(64);
        records.put(0, new UnsafeBuffer(new byte[]{1, 2, 3}), 0, 3);
        final UnsafeBuffer taken = new UnsafeBuffer(new byte[3]);
        records.get(taken, 3);
        assertArrayEquals(new byte[]{1, 2, 3}, taken.byteArray());
    }
}

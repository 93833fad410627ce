package io.aeronspark.inbox;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import org.agrona.BitUtil;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * What an {@link Inbox} has to tell after one poll, one record after the other in memory the caller reads in place:
 * <pre>
 *   i32 kind, i32 token, i64 image, i32 length, i32 session id, length bytes of payload, zeros up to a multiple of 8
 * </pre>
 * in the machine's own byte order. Not thread-safe.
 */
final class InboxRecords
{
    static final int ARRIVED = 1;
    static final int JOINED = 2;
    static final int LEFT = 3;
    static final int REJECTED = 4;
    static final int FAILED = 5;
    static final int JOINED_LATE = 6;

    static final int HEADER = 24;

    private final ByteBuffer memory;
    private final UnsafeBuffer buffer;
    private int used;

    InboxRecords(final int capacity)
    {
        memory = ByteBuffer.allocateDirect(capacity).order(ByteOrder.nativeOrder());
        buffer = new UnsafeBuffer(memory);
    }

    ByteBuffer memory()
    {
        return memory;
    }

    int used()
    {
        return used;
    }

    void clear()
    {
        used = 0;
    }

    static int sizeOf(final int length)
    {
        return HEADER + BitUtil.align(length, 8);
    }

    boolean hasRoomFor(final int length)
    {
        return sizeOf(length) <= buffer.capacity() - used;
    }

    /** Copy a part of the next record's payload; it is not there before {@link #add} says so. */
    void put(final int at, final DirectBuffer from, final int offset, final int length)
    {
        buffer.putBytes(used + HEADER + at, from, offset, length);
    }

    /** Copy what {@link #put} left, for a record that must wait. */
    void get(final DirectBuffer to, final int length)
    {
        buffer.getBytes(used + HEADER, (UnsafeBuffer)to, 0, length);
    }

    /** Make a record of the payload that was put. */
    void add(final int kind, final int token, final long image, final int sessionId, final int length)
    {
        buffer.putInt(used, kind);
        buffer.putInt(used + 4, token);
        buffer.putLong(used + 8, image);
        buffer.putInt(used + 16, length);
        buffer.putInt(used + 20, sessionId);
        used += sizeOf(length);
    }

    void add(final int kind, final int token, final long image, final int sessionId, final String text)
    {
        final byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        buffer.putBytes(used + HEADER, bytes);
        add(kind, token, image, sessionId, bytes.length);
    }
}

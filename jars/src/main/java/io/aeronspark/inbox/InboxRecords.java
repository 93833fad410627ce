package io.aeronspark.inbox;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import org.agrona.BitUtil;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * The messages and events of one poll of an {@link Inbox}, one record behind the other, in memory that Python reads in
 * place:
 * <pre>
 *   i32 kind, i32 token, i64 image id, i32 payload length, i32 session id, payload, zeros up to a multiple of 8
 * </pre>
 * Numbers have the byte order of the machine. Not thread-safe, except {@link #dropped()}.
 */
final class InboxRecords
{
    static final int MESSAGE = 1;
    static final int IMAGE_AVAILABLE = 2;
    static final int IMAGE_UNAVAILABLE = 3;
    static final int PUBLICATION_REJECTED = 4;
    static final int SUBSCRIPTION_FAILED = 5;
    /** An available image that does not begin at the publication's first byte: earlier messages were missed. */
    static final int IMAGE_AVAILABLE_LATE = 6;

    private static final int TOKEN_OFFSET = 4;
    private static final int IMAGE_OFFSET = 8;
    private static final int LENGTH_OFFSET = 16;
    private static final int SESSION_OFFSET = 20;
    static final int HEADER_LENGTH = 24;

    private final ByteBuffer memory;
    private final UnsafeBuffer buffer;
    private int used;
    private volatile long dropped;

    InboxRecords(final int capacity)
    {
        memory = ByteBuffer.allocateDirect(capacity).order(ByteOrder.nativeOrder());
        buffer = new UnsafeBuffer(memory);
    }

    ByteBuffer memory()
    {
        return memory;
    }

    /** Bytes of all complete records. */
    int used()
    {
        return used;
    }

    void clear()
    {
        used = 0;
    }

    /** Bytes of a record whose payload has {@code length} bytes. */
    static int sizeOf(final int length)
    {
        return HEADER_LENGTH + BitUtil.align(length, 8);
    }

    boolean hasRoomFor(final int length)
    {
        return sizeOf(length) <= buffer.capacity() - used;
    }

    /** Write a part of the next record's payload at {@code at}. Only {@link #add} makes it a record. */
    void putPayload(final int at, final DirectBuffer from, final int offset, final int length)
    {
        buffer.putBytes(used + HEADER_LENGTH + at, from, offset, length);
    }

    /** Copy the payload of the next record out again, for a message that is not complete at the end of a poll. */
    void getPayload(final UnsafeBuffer to, final int length)
    {
        buffer.getBytes(used + HEADER_LENGTH, to, 0, length);
    }

    /** Make a record of the {@code length} bytes of payload that were put. */
    void add(final int kind, final int token, final long imageId, final int sessionId, final int length)
    {
        buffer.putInt(used, kind);
        buffer.putInt(used + TOKEN_OFFSET, token);
        buffer.putLong(used + IMAGE_OFFSET, imageId);
        buffer.putInt(used + LENGTH_OFFSET, length);
        buffer.putInt(used + SESSION_OFFSET, sessionId);
        used += sizeOf(length);
    }

    /** Add a record whose payload is {@code text} in UTF-8. */
    void add(final int kind, final int token, final long imageId, final int sessionId, final String text)
    {
        final byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        buffer.putBytes(used + HEADER_LENGTH, bytes);
        add(kind, token, imageId, sessionId, bytes.length);
    }

    /** Count a message that was dropped unread. On the polling thread only. */
    void countDropped()
    {
        dropped++;
    }

    /** Messages dropped unread since the beginning. Any thread may call it. */
    long dropped()
    {
        return dropped;
    }
}

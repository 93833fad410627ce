package io.aeronspark.inbox;

import static io.aeron.logbuffer.FrameDescriptor.BEGIN_FRAG_FLAG;
import static io.aeron.logbuffer.FrameDescriptor.END_FRAG_FLAG;
import static io.aeron.logbuffer.FrameDescriptor.UNFRAGMENTED;

import io.aeron.Image;
import io.aeron.logbuffer.ControlledFragmentHandler;
import io.aeron.logbuffer.Header;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Reads one image and writes its messages as records. The fragments of a message are put together in the free memory of
 * the records, so that most messages are copied once. If the message is not complete when the poll ends, its bytes move
 * to memory of this image, because the next poll overwrites the records.
 * <p>
 * Used by the polling thread; {@link #hasMore} also by the {@link IdleInboxPoller} while the polling thread sleeps.
 */
final class ImageMessages implements ControlledFragmentHandler
{
    /** Most fragments and most messages of one poll, so that one busy publication does not delay the others. */
    private static final int FRAGMENT_LIMIT = 512;
    /** The event loop takes some 0.1 ms for a message of any length. */
    private static final int MESSAGE_LIMIT = 16;
    private static final int MIN_KEPT_CAPACITY = 4096;

    final Image image;
    private final int token;
    private final int maxMessageLength;
    private final boolean unfragmentedOnly;
    private final InboxRecords records;
    private final Peek peek = new Peek();

    /** Whether a message has begun and not ended. */
    private boolean isAssembling;
    /** Bytes of the message that is being assembled. */
    private int length;
    /** Whether these bytes are in {@link #kept}, and not in the memory of the records. */
    private boolean isKept;
    private UnsafeBuffer kept;
    private boolean isFull;
    /** Messages of this poll. */
    private int messages;

    /** Notices that a fragment is available and leaves it. */
    private static final class Peek implements ControlledFragmentHandler
    {
        boolean hasSeenFragment;

        @Override
        public Action onFragment(final DirectBuffer buffer, final int offset, final int length, final Header header)
        {
            hasSeenFragment = true;
            return Action.ABORT;
        }
    }

    /**
     * @param token            of the subscription, for the records.
     * @param maxMessageLength in bytes; longer messages are dropped and counted.
     * @param unfragmentedOnly whether messages of several fragments are dropped and counted.
     */
    ImageMessages(
        final Image image,
        final int token,
        final int maxMessageLength,
        final boolean unfragmentedOnly,
        final InboxRecords records)
    {
        this.image = image;
        this.token = token;
        this.maxMessageLength = maxMessageLength;
        this.unfragmentedOnly = unfragmentedOnly;
        this.records = records;
    }

    /** Write the available messages as records; return whether the records have no room for the next one. */
    boolean poll()
    {
        isFull = false;
        messages = 0;
        image.controlledPoll(this, FRAGMENT_LIMIT);
        keepUnfinishedMessage();
        return isFull;
    }

    /** Whether a poll would find something. */
    boolean hasMore()
    {
        final long position = image.position();
        peek.hasSeenFragment = false;
        // Padding moves the position without a fragment.
        return image.controlledPeek(position, peek, Long.MAX_VALUE) != position || peek.hasSeenFragment;
    }

    @Override
    public Action onFragment(final DirectBuffer buffer, final int offset, final int length, final Header header)
    {
        final byte flags = header.flags();
        if ((flags & UNFRAGMENTED) == UNFRAGMENTED)
        {
            return onMessage(buffer, offset, length);
        }
        if (!unfragmentedOnly)
        {
            return onPart(flags, buffer, offset, length);
        }
        if ((flags & BEGIN_FRAG_FLAG) != 0)
        {
            records.countDropped();
        }
        return Action.CONTINUE;
    }

    private Action onMessage(final DirectBuffer buffer, final int offset, final int length)
    {
        if (length > maxMessageLength)
        {
            records.countDropped();
            return Action.CONTINUE;
        }
        if (!records.hasRoomFor(length))
        {
            return abortFull();
        }
        isAssembling = false;
        records.putPayload(0, buffer, offset, length);
        return addMessage(length);
    }

    private Action onPart(final byte flags, final DirectBuffer buffer, final int offset, final int partLength)
    {
        final boolean isFirst = (flags & BEGIN_FRAG_FLAG) != 0;
        final boolean isLast = (flags & END_FRAG_FLAG) != 0;
        if (!isFirst && !isAssembling)
        {
            return Action.CONTINUE; // The message began before the image, or was dropped.
        }
        final boolean continuesKept = isKept && !isFirst;
        final int before = isFirst ? 0 : length;
        final int newLength = before + partLength;
        if (newLength > maxMessageLength)
        {
            records.countDropped();
            isAssembling = false;
            isKept = false;
            return Action.CONTINUE;
        }
        if ((!continuesKept || isLast) && !records.hasRoomFor(newLength))
        {
            return abortFull();
        }
        isAssembling = !isLast;
        isKept = continuesKept && !isLast;
        length = newLength;
        if (continuesKept)
        {
            ensureKeptCapacity(newLength);
            kept.putBytes(before, buffer, offset, partLength);
        }
        else
        {
            records.putPayload(before, buffer, offset, partLength);
        }
        if (isLast)
        {
            if (continuesKept)
            {
                records.putPayload(0, kept, 0, newLength);
            }
            return addMessage(newLength);
        }
        return Action.CONTINUE;
    }

    /** Add the record of a message whose payload is there; end the poll after the last message that it may have. */
    private Action addMessage(final int length)
    {
        records.add(InboxRecords.MESSAGE, token, image.correlationId(), image.sessionId(), length);
        return ++messages < MESSAGE_LIMIT ? Action.CONTINUE : Action.BREAK;
    }

    private Action abortFull()
    {
        isFull = true;
        return Action.ABORT;
    }

    private void keepUnfinishedMessage()
    {
        if (isAssembling && !isKept)
        {
            ensureKeptCapacity(length);
            records.getPayload(kept, length);
            isKept = true;
        }
    }

    private void ensureKeptCapacity(final int needed)
    {
        if (kept == null || kept.capacity() < needed)
        {
            final int capacity = Math.min(maxMessageLength, Math.max(2 * needed, MIN_KEPT_CAPACITY));
            final UnsafeBuffer larger = new UnsafeBuffer(new byte[capacity]);
            if (kept != null)
            {
                larger.putBytes(0, kept, 0, kept.capacity());
            }
            kept = larger;
        }
    }
}

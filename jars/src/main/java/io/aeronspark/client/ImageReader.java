package io.aeronspark.client;

import static io.aeron.logbuffer.FrameDescriptor.BEGIN_FRAG_FLAG;
import static io.aeron.logbuffer.FrameDescriptor.END_FRAG_FLAG;

import io.aeron.Image;
import io.aeron.logbuffer.FragmentHandler;
import io.aeron.logbuffer.Header;
import java.util.ArrayList;
import java.util.List;
import org.agrona.DirectBuffer;
import org.agrona.ExpandableArrayBuffer;

/**
 * Reads the messages of one image, for protocols of a few messages a second. Aeron's assembler allocates memory for
 * messages of any length up to 16 MiB; here the receiver sets a limit. docs/threads.md says why this is not
 * in Python.
 * <p>
 * Used by one thread.
 */
public final class ImageReader implements FragmentHandler
{
    private final Image image;
    private final int limit;
    private final List<byte[]> messages = new ArrayList<>();
    private final ExpandableArrayBuffer parts = new ExpandableArrayBuffer();
    private long length;
    /** Whether the first fragment of the current message was received. */
    private boolean hasBegin;

    /**
     * @param limit longest message, in bytes.
     */
    public ImageReader(final Image image, final int limit)
    {
        this.image = image;
        this.limit = limit;
    }

    /** The messages that up to {@code fragments} fragments complete; null for a message above the limit. */
    public byte[][] poll(final int fragments)
    {
        image.poll(this, fragments);
        final byte[][] received = messages.toArray(new byte[0][]);
        messages.clear();
        return received;
    }

    @Override
    public void onFragment(final DirectBuffer buffer, final int offset, final int partLength, final Header header)
    {
        final byte flags = header.flags();
        if ((flags & BEGIN_FRAG_FLAG) != 0)
        {
            hasBegin = true;
            length = 0;
        }
        else if (!hasBegin)
        {
            return; // The image became available in the middle of this message.
        }
        if (length + partLength <= limit)
        {
            parts.putBytes((int)length, buffer, offset, partLength);
        }
        length += partLength;
        if ((flags & END_FRAG_FLAG) != 0)
        {
            messages.add(length <= limit ? message() : null);
            hasBegin = false;
        }
    }

    private byte[] message()
    {
        final byte[] copy = new byte[(int)length];
        parts.getBytes(0, copy);
        return copy;
    }
}

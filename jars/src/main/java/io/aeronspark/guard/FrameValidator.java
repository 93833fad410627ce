package io.aeronspark.guard;

import static io.aeron.protocol.HeaderFlyweight.CURRENT_VERSION;
import static io.aeron.protocol.HeaderFlyweight.HDR_TYPE_DATA;
import static io.aeron.protocol.HeaderFlyweight.HDR_TYPE_ERR;
import static io.aeron.protocol.HeaderFlyweight.HDR_TYPE_NAK;
import static io.aeron.protocol.HeaderFlyweight.HDR_TYPE_PAD;
import static io.aeron.protocol.HeaderFlyweight.HDR_TYPE_RSP_SETUP;
import static io.aeron.protocol.HeaderFlyweight.HDR_TYPE_RTTM;
import static io.aeron.protocol.HeaderFlyweight.HDR_TYPE_SETUP;
import static io.aeron.protocol.HeaderFlyweight.HDR_TYPE_SM;
import static java.nio.ByteOrder.LITTLE_ENDIAN;

import io.aeron.logbuffer.FrameDescriptor;
import io.aeron.protocol.DataHeaderFlyweight;
import io.aeron.protocol.ErrorFlyweight;
import io.aeron.protocol.HeaderFlyweight;
import io.aeron.protocol.NakFlyweight;
import io.aeron.protocol.ResponseSetupFlyweight;
import io.aeron.protocol.RttMeasurementFlyweight;
import io.aeron.protocol.SetupFlyweight;
import io.aeron.protocol.StatusMessageFlyweight;
import org.agrona.BitUtil;
import org.agrona.DirectBuffer;

/**
 * Checks that a datagram is as long as its headers say and that its frames fit together. Aeron checks the first eight
 * bytes only: in a short datagram it would read the rest from the datagram before, and it copies a data packet into the
 * log at the offset that the packet names.
 */
final class FrameValidator
{
    /** Result of {@link #dataEnd} for a packet that must be dropped. */
    static final int INVALID = -1;
    private static final int ALIGNMENT = FrameDescriptor.FRAME_ALIGNMENT;
    // Offsets that all frames of receivers have in common.
    private static final int CONTROL_SESSION_OFFSET = 8;
    private static final int CONTROL_STREAM_OFFSET = 12;

    private FrameValidator()
    {
    }

    private static int type(final DirectBuffer buffer)
    {
        return buffer.getShort(HeaderFlyweight.TYPE_FIELD_OFFSET, LITTLE_ENDIAN) & 0xFFFF;
    }

    static int controlSessionId(final DirectBuffer buffer, final int offset)
    {
        return buffer.getInt(offset + CONTROL_SESSION_OFFSET, LITTLE_ENDIAN);
    }

    static int controlStreamId(final DirectBuffer buffer, final int offset)
    {
        return buffer.getInt(offset + CONTROL_STREAM_OFFSET, LITTLE_ENDIAN);
    }

    /**
     * Whether it is a frame for a receiving endpoint, and all of its fields are inside the datagram of {@code length}
     * bytes.
     */
    static boolean isForReceiver(final DirectBuffer buffer, final int length)
    {
        if (!hasHeader(buffer, length))
        {
            return false;
        }
        return switch (type(buffer))
        {
            case HDR_TYPE_DATA, HDR_TYPE_PAD -> INVALID != dataEnd(buffer, length);
            case HDR_TYPE_SETUP -> isWhole(buffer, length, SetupFlyweight.HEADER_LENGTH, SetupFlyweight.HEADER_LENGTH);
            case HDR_TYPE_RTTM ->
                isWhole(buffer, length, RttMeasurementFlyweight.HEADER_LENGTH, RttMeasurementFlyweight.HEADER_LENGTH);
            default -> false;
        };
    }

    /**
     * Whether it is a frame for a sending endpoint, and all of its fields are inside the datagram of {@code length}
     * bytes.
     */
    static boolean isForSender(final DirectBuffer buffer, final int length)
    {
        if (!hasHeader(buffer, length))
        {
            return false;
        }
        return switch (type(buffer))
        {
            case HDR_TYPE_SM -> isWhole(
                buffer,
                length,
                StatusMessageFlyweight.HEADER_LENGTH,
                StatusMessageFlyweight.HEADER_LENGTH + Long.BYTES);
            case HDR_TYPE_NAK -> isWhole(buffer, length, NakFlyweight.HEADER_LENGTH, NakFlyweight.HEADER_LENGTH);
            case HDR_TYPE_RTTM ->
                isWhole(buffer, length, RttMeasurementFlyweight.HEADER_LENGTH, RttMeasurementFlyweight.HEADER_LENGTH);
            case HDR_TYPE_RSP_SETUP ->
                isWhole(buffer, length, ResponseSetupFlyweight.HEADER_LENGTH, ResponseSetupFlyweight.HEADER_LENGTH);
            case HDR_TYPE_ERR ->
                isWhole(buffer, length, ErrorFlyweight.HEADER_LENGTH, ErrorFlyweight.MAX_ERROR_FRAME_LENGTH) &&
                hasTextInside(buffer, length);
            default -> false;
        };
    }

    /**
     * Walk all frames of a data packet. They must have the same session, stream and term, follow each other without a
     * gap, and fill the packet. Padding must be the last frame, because only its header is sent.
     *
     * @return the offset in the term at which the last frame ends, or {@link #INVALID}.
     */
    static int dataEnd(final DirectBuffer buffer, final int length)
    {
        if (length < DataHeaderFlyweight.HEADER_LENGTH || (length & ALIGNMENT - 1) != 0)
        {
            return INVALID;
        }
        final long begin = intAt(buffer, DataHeaderFlyweight.TERM_OFFSET_FIELD_OFFSET);
        if (begin < 0 || (begin & ALIGNMENT - 1) != 0)
        {
            return INVALID;
        }
        if (DataHeaderFlyweight.HEADER_LENGTH == length && 0 == intAt(buffer, 0))
        {
            // A heartbeat, or the end of the stream.
            return HDR_TYPE_DATA == type(buffer) ? (int)begin : INVALID;
        }
        int offset = 0;
        long end = begin;
        while (offset < length)
        {
            final int frameLength = intAt(buffer, offset);
            if (frameLength < DataHeaderFlyweight.HEADER_LENGTH || begin + offset != end ||
                !matchesFirst(buffer, offset))
            {
                return INVALID;
            }
            final int type = buffer.getShort(offset + HeaderFlyweight.TYPE_FIELD_OFFSET, LITTLE_ENDIAN) & 0xFFFF;
            final long aligned = BitUtil.align((long)frameLength, ALIGNMENT);
            end += aligned;
            offset += HDR_TYPE_PAD == type ? DataHeaderFlyweight.HEADER_LENGTH : (int)Math.min(aligned, length + 1L);
            if (offset > length || end > Integer.MAX_VALUE || HDR_TYPE_PAD == type && offset != length)
            {
                return INVALID;
            }
        }
        return (int)end;
    }

    private static boolean matchesFirst(final DirectBuffer buffer, final int offset)
    {
        final int type = buffer.getShort(offset + HeaderFlyweight.TYPE_FIELD_OFFSET, LITTLE_ENDIAN) & 0xFFFF;
        return CURRENT_VERSION == buffer.getByte(offset + HeaderFlyweight.VERSION_FIELD_OFFSET) &&
            (HDR_TYPE_DATA == type || HDR_TYPE_PAD == type) &&
            equalsFirst(buffer, offset, DataHeaderFlyweight.SESSION_ID_FIELD_OFFSET) &&
            equalsFirst(buffer, offset, DataHeaderFlyweight.STREAM_ID_FIELD_OFFSET) &&
            equalsFirst(buffer, offset, DataHeaderFlyweight.TERM_ID_FIELD_OFFSET) &&
            intAt(buffer, DataHeaderFlyweight.TERM_OFFSET_FIELD_OFFSET) + offset ==
                intAt(buffer, offset + DataHeaderFlyweight.TERM_OFFSET_FIELD_OFFSET);
    }

    private static boolean equalsFirst(final DirectBuffer buffer, final int offset, final int field)
    {
        return intAt(buffer, field) == intAt(buffer, offset + field);
    }

    private static boolean hasHeader(final DirectBuffer buffer, final int length)
    {
        return length >= HeaderFlyweight.MIN_HEADER_LENGTH &&
            CURRENT_VERSION == buffer.getByte(HeaderFlyweight.VERSION_FIELD_OFFSET);
    }

    private static boolean isWhole(final DirectBuffer buffer, final int length, final int shortest, final int longest)
    {
        final int frameLength = intAt(buffer, 0);
        return frameLength >= shortest && frameLength <= Math.min(longest, length);
    }

    private static boolean hasTextInside(final DirectBuffer buffer, final int length)
    {
        final int text = intAt(buffer, ErrorFlyweight.ERROR_STRING_FIELD_OFFSET);
        final int room = length - ErrorFlyweight.HEADER_LENGTH;
        return text >= 0 && text <= Math.min(ErrorFlyweight.MAX_ERROR_MESSAGE_LENGTH, room);
    }

    private static int intAt(final DirectBuffer buffer, final int offset)
    {
        return buffer.getInt(offset, LITTLE_ENDIAN);
    }
}

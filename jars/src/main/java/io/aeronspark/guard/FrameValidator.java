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
 * Whether a datagram is what its first header says. Aeron looks at the first eight bytes only: the rest of a short datagram is what the last
 * one left in its buffer, and a data packet is copied into the log at the offset it names, whatever lies there.
 */
final class FrameValidator
{
    /** Of {@link #dataEnd}. */
    static final int INVALID = -1;
    private static final int ALIGNMENT = FrameDescriptor.FRAME_ALIGNMENT;
    /** Session and stream id of everything that receivers send. */
    private static final int CONTROL_SESSION_OFFSET = 8;
    private static final int CONTROL_STREAM_OFFSET = 12;

    private FrameValidator()
    {
    }

    static int type(final DirectBuffer buffer)
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

    /** Whether a receiving endpoint can read this without going beyond it. */
    static boolean isReceivable(final DirectBuffer buffer, final int length)
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

    /** Whether a sending endpoint can read this without going beyond it. */
    static boolean isControl(final DirectBuffer buffer, final int length)
    {
        if (!hasHeader(buffer, length))
        {
            return false;
        }
        return switch (type(buffer))
        {
            case HDR_TYPE_SM -> isWhole(
                buffer, length, StatusMessageFlyweight.HEADER_LENGTH, StatusMessageFlyweight.HEADER_LENGTH + Long.BYTES);
            case HDR_TYPE_NAK -> isWhole(buffer, length, NakFlyweight.HEADER_LENGTH, NakFlyweight.HEADER_LENGTH);
            case HDR_TYPE_RTTM ->
                isWhole(buffer, length, RttMeasurementFlyweight.HEADER_LENGTH, RttMeasurementFlyweight.HEADER_LENGTH);
            case HDR_TYPE_RSP_SETUP ->
                isWhole(buffer, length, ResponseSetupFlyweight.HEADER_LENGTH, ResponseSetupFlyweight.HEADER_LENGTH);
            case HDR_TYPE_ERR -> isWhole(buffer, length, ErrorFlyweight.HEADER_LENGTH, ErrorFlyweight.MAX_ERROR_FRAME_LENGTH) &&
                isTextInside(buffer, length);
            default -> false;
        };
    }

    /**
     * Walk every frame of a data packet: same session, stream and term, one directly behind the other, up to the packet's end; padding only
     * as the last, because only its header is sent.
     *
     * @return the offset in the term at which the last frame ends, or {@link #INVALID}.
     */
    static int dataEnd(final DirectBuffer buffer, final int length)
    {
        if (length < DataHeaderFlyweight.HEADER_LENGTH || (length & ALIGNMENT - 1) != 0)
        {
            return INVALID;
        }
        final long begin = word(buffer, DataHeaderFlyweight.TERM_OFFSET_FIELD_OFFSET);
        if (begin < 0 || (begin & ALIGNMENT - 1) != 0)
        {
            return INVALID;
        }
        if (DataHeaderFlyweight.HEADER_LENGTH == length && 0 == word(buffer, 0)) // a heartbeat, or the end of the stream
        {
            return HDR_TYPE_DATA == type(buffer) ? (int)begin : INVALID;
        }
        int offset = 0;
        long end = begin;
        while (offset < length)
        {
            final int frameLength = word(buffer, offset);
            if (frameLength < DataHeaderFlyweight.HEADER_LENGTH || begin + offset != end || !isLikeFirst(buffer, offset))
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

    private static boolean isLikeFirst(final DirectBuffer buffer, final int offset)
    {
        final int type = buffer.getShort(offset + HeaderFlyweight.TYPE_FIELD_OFFSET, LITTLE_ENDIAN) & 0xFFFF;
        return CURRENT_VERSION == buffer.getByte(offset + HeaderFlyweight.VERSION_FIELD_OFFSET) &&
            (HDR_TYPE_DATA == type || HDR_TYPE_PAD == type) &&
            same(buffer, offset, DataHeaderFlyweight.SESSION_ID_FIELD_OFFSET) &&
            same(buffer, offset, DataHeaderFlyweight.STREAM_ID_FIELD_OFFSET) &&
            same(buffer, offset, DataHeaderFlyweight.TERM_ID_FIELD_OFFSET) &&
            word(buffer, DataHeaderFlyweight.TERM_OFFSET_FIELD_OFFSET) + offset ==
                word(buffer, offset + DataHeaderFlyweight.TERM_OFFSET_FIELD_OFFSET);
    }

    private static boolean same(final DirectBuffer buffer, final int offset, final int field)
    {
        return word(buffer, field) == word(buffer, offset + field);
    }

    private static boolean hasHeader(final DirectBuffer buffer, final int length)
    {
        return length >= HeaderFlyweight.MIN_HEADER_LENGTH &&
            CURRENT_VERSION == buffer.getByte(HeaderFlyweight.VERSION_FIELD_OFFSET);
    }

    private static boolean isWhole(final DirectBuffer buffer, final int length, final int shortest, final int longest)
    {
        final int frameLength = word(buffer, 0);
        return frameLength >= shortest && frameLength <= Math.min(longest, length);
    }

    private static boolean isTextInside(final DirectBuffer buffer, final int length)
    {
        final int text = word(buffer, ErrorFlyweight.ERROR_STRING_FIELD_OFFSET);
        return text >= 0 && text <= Math.min(ErrorFlyweight.MAX_ERROR_MESSAGE_LENGTH, length - ErrorFlyweight.HEADER_LENGTH);
    }

    private static int word(final DirectBuffer buffer, final int offset)
    {
        return buffer.getInt(offset, LITTLE_ENDIAN);
    }
}

package io.aeronspark.guard;

import io.aeron.logbuffer.FrameDescriptor;
import io.aeron.protocol.DataHeaderFlyweight;
import io.aeron.protocol.HeaderFlyweight;
import java.util.Base64;
import org.agrona.concurrent.UnsafeBuffer;

/** HELLO packets of docs/endpoint-protocol.md, and data packets that carry one. */
final class Hellos
{
    static final int HEADER_LENGTH = DataHeaderFlyweight.HEADER_LENGTH;
    private static final int FRAME_LENGTH = HEADER_LENGTH + HelloPacket.LENGTH;
    private static final int COOKIE_LENGTH_OFFSET = 53;

    private Hellos()
    {
    }

    /** The HELLO with the core of {@code test_retry_cookies.py}, without a cookie. */
    static UnsafeBuffer hello()
    {
        final UnsafeBuffer hello = new UnsafeBuffer(new byte[HelloPacket.LENGTH]);
        hello.putBytes(0, new byte[]{'A', 'S', 1, 1});
        hello.setMemory(4, 16, (byte)'k');
        hello.putByte(20, (byte)32);
        hello.setMemory(21, 32, (byte)'e');
        return hello;
    }

    /** The HELLO with a cookie in base64url. */
    static UnsafeBuffer helloWith(final String cookie)
    {
        final UnsafeBuffer hello = hello();
        hello.putByte(COOKIE_LENGTH_OFFSET, (byte)HelloPacket.COOKIE_LENGTH);
        hello.putBytes(COOKIE_LENGTH_OFFSET + 1, Base64.getUrlDecoder().decode(cookie));
        return hello;
    }

    /** A data packet at the start of a stream with this packet as its only message. */
    static DataHeaderFlyweight packet(
        final UnsafeBuffer message, final int sessionId, final int streamId, final int termId)
    {
        final DataHeaderFlyweight header = new DataHeaderFlyweight(new UnsafeBuffer(new byte[FRAME_LENGTH + 20]));
        header.sessionId(sessionId).streamId(streamId).termId(termId).termOffset(0);
        header.version(HeaderFlyweight.CURRENT_VERSION).headerType(HeaderFlyweight.HDR_TYPE_DATA)
            .flags((short)(FrameDescriptor.UNFRAGMENTED & 0xFF)).frameLength(HEADER_LENGTH + message.capacity());
        header.putBytes(HEADER_LENGTH, message, 0, message.capacity());
        return header;
    }

    /** A heartbeat at this position of the first term. */
    static DataHeaderFlyweight heartbeat(
        final int sessionId, final int streamId, final int termId, final int termOffset, final short flags)
    {
        final DataHeaderFlyweight header = new DataHeaderFlyweight(new UnsafeBuffer(new byte[HEADER_LENGTH]));
        header.sessionId(sessionId).streamId(streamId).termId(termId).termOffset(termOffset);
        header.version(HeaderFlyweight.CURRENT_VERSION).headerType(HeaderFlyweight.HDR_TYPE_DATA).flags(flags)
            .frameLength(0);
        return header;
    }
}

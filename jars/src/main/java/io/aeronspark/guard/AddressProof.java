package io.aeronspark.guard;

import io.aeron.logbuffer.FrameDescriptor;
import io.aeron.protocol.DataHeaderFlyweight;
import io.aeron.protocol.SetupFlyweight;
import io.aeronspark.driver.HandshakeStream;
import java.net.InetAddress;
import org.agrona.DirectBuffer;

/**
 * Decides on the frames of a session before its admission, if the server of its stream requires a cookie. The guard
 * answers such frames in the place of a receiver, and keeps nothing for the session: it acknowledges the SETUP, and
 * rejects the HELLO with a cookie. The client then opens another session, whose HELLO has the cookie. This HELLO proves
 * that the client receives packets at its address, and the guard admits the session.
 * <p>
 * Used by the receiver thread alone.
 */
final class AddressProof
{
    /** What to do with a data packet. */
    enum Action
    {
        /** Admit its session: the packet is a HELLO with a valid cookie. */
        ADMIT,
        /** Reject its session, for {@link #reason}. */
        REJECT,
        /** Request the session's data again: the packet is a heartbeat, so the HELLO or the answer to it was lost. */
        REPEAT,
        /** Ignore it. */
        IGNORE
    }

    private static final String PREFIX = "aeron-spark/1 ";
    // The texts of protocol/server_handshake.py.
    private static final String BAD_MESSAGE = PREFIX + "FAILED message Bad message";
    private static final String NO_PENDING = PREFIX + "FAILED timeout No pending handshake";
    private static final String OTHER_VERSION = PREFIX + "FAILED version This server speaks version 1";

    private final CookieRegistry registry;
    private HelloCookies cookies;
    private String reason = "";

    AddressProof(final CookieRegistry registry)
    {
        this.registry = registry;
    }

    /** Whether a source must return a cookie before it can open a session of this stream. */
    boolean isRequired(final int localPort, final int streamId, final long nowNs)
    {
        return null != registry.find(localPort, streamId, nowNs);
    }

    /** The reason for the last {@link Action#REJECT}. */
    String reason()
    {
        return reason;
    }

    /** The drop reason of a SETUP that differs from those of the protocol's clients; null for one of theirs. */
    static DropReason faultOf(final SetupFlyweight setup)
    {
        if (HandshakeStream.TERM_LENGTH != setup.termLength())
        {
            return DropReason.TERM_LENGTH;
        }
        if (HandshakeStream.MTU != setup.mtuLength())
        {
            return DropReason.MTU;
        }
        final int offset = setup.termOffset();
        final boolean isPossible = setup.activeTermId() == setup.initialTermId() && offset >= 0 &&
            offset <= HandshakeStream.TERM_LENGTH && (offset & FrameDescriptor.FRAME_ALIGNMENT - 1) == 0;
        return isPossible ? null : DropReason.INVALID;
    }

    /** Decide on a valid data packet of a stream for which {@link #isRequired} is true. */
    Action decide(
        final DataHeaderFlyweight header,
        final DirectBuffer packet,
        final InetAddress source,
        final int localPort,
        final long nowNs)
    {
        final int position = header.termOffset();
        if (0 == header.frameLength())
        {
            return 0 == position || hasEndOfStreamFlag(header) ? Action.IGNORE : Action.REPEAT;
        }
        if (0 != position)
        {
            return reject(NO_PENDING);
        }
        final int payload = header.frameLength() - DataHeaderFlyweight.HEADER_LENGTH;
        final boolean isOneFragment = FrameDescriptor.UNFRAGMENTED == (byte)header.flags();
        final HelloPacket.Kind kind = isOneFragment ?
            HelloPacket.kindOf(packet, DataHeaderFlyweight.HEADER_LENGTH, payload) : HelloPacket.Kind.MALFORMED;
        return switch (kind)
        {
            case HELLO -> decideOnHello(packet, source, localPort, header.streamId(), nowNs);
            case DONE -> reject(NO_PENDING);
            case OTHER_VERSION -> reject(OTHER_VERSION);
            case MALFORMED -> reject(BAD_MESSAGE);
        };
    }

    /** Spend the cookie of the last HELLO for which {@link #decide} returned {@link Action#ADMIT}. */
    void spend()
    {
        cookies.spend();
    }

    private Action decideOnHello(
        final DirectBuffer packet,
        final InetAddress source,
        final int localPort,
        final int streamId,
        final long nowNs)
    {
        cookies = registry.find(localPort, streamId, nowNs);
        if (cookies.isValid(source, packet, DataHeaderFlyweight.HEADER_LENGTH, nowNs))
        {
            return Action.ADMIT;
        }
        return reject(PREFIX + "RETRY " + cookies.make(source, packet, DataHeaderFlyweight.HEADER_LENGTH, nowNs));
    }

    private static boolean hasEndOfStreamFlag(final DataHeaderFlyweight header)
    {
        return 0 != (header.flags() & DataHeaderFlyweight.EOS_FLAG);
    }

    private Action reject(final String text)
    {
        reason = text;
        return Action.REJECT;
    }
}

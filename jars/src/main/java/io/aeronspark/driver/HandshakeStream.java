package io.aeronspark.driver;

/** The Aeron stream of the endpoint's handshakes, as docs/endpoint-protocol.md defines it. */
public final class HandshakeStream
{
    /** Stream id of all handshakes; {@code HANDSHAKE_STREAM_ID} in Python. */
    public static final int ID = 0x41530001;
    /** Term length of every publication of a handshake, in bytes; {@code HANDSHAKE_TERM_BYTES} in Python. */
    public static final int TERM_LENGTH = 64 * 1024;
    /** MTU of every publication of a handshake, in bytes; {@code MTU_BYTES} in Python. */
    public static final int MTU = 1184;

    private HandshakeStream()
    {
    }
}

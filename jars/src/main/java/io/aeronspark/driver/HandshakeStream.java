package io.aeronspark.driver;

/** The Aeron stream of the endpoint's handshakes, as docs/endpoint-protocol.md defines it. */
public final class HandshakeStream
{
    /** Stream id of all handshakes; {@code HANDSHAKE_STREAM_ID} in Python. */
    public static final int ID = 0x41530001;

    private HandshakeStream()
    {
    }
}

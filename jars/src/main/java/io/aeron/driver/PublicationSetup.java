package io.aeron.driver;

import io.aeron.protocol.SetupFlyweight;

/**
 * Writes the SETUP frame of a publication. It is in Aeron's package because {@link NetworkPublication} shows its term
 * lengths and starting position only there.
 */
public final class PublicationSetup
{
    private PublicationSetup()
    {
    }

    /** Write the fields of a SETUP frame for a publication that has not sent data yet. Call it on the sender thread. */
    public static void describe(final NetworkPublication publication, final SetupFlyweight setup)
    {
        setup
            .initialTermId(publication.initialTermId())
            .activeTermId(publication.startingTermId())
            .termOffset(publication.startingTermOffset())
            .sessionId(publication.sessionId())
            .streamId(publication.streamId())
            .termLength(publication.termBufferLength())
            .mtuLength(publication.mtuLength())
            .ttl(0)
            .flags((short)0);
    }
}

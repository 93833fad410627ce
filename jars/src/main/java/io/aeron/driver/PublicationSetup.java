package io.aeron.driver;

import io.aeron.protocol.SetupFlyweight;

/** In Aeron's package, for a publication tells its geometry to nobody else. */
public final class PublicationSetup
{
    private PublicationSetup()
    {
    }

    /** Write the set-up of a publication that has sent nothing yet. */
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

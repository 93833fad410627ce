package io.aeronspark.inbox;

import io.aeron.ErrorCode;
import io.aeron.PublicationErrorFrameHandler;
import io.aeron.status.PublicationErrorFrame;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Passes rejections of a client's publications to the inboxes that expect them. Only the first rejection of a
 * publication is passed on, because a receiver repeats it.
 * <p>
 * Thread-safe. Aeron calls it on the client's conductor thread.
 */
public final class PublicationRejections implements PublicationErrorFrameHandler
{
    private record Expected(Inbox inbox, int token)
    {
    }

    private final Map<Long, Expected> byRegistrationId = new ConcurrentHashMap<>();

    /** Report a rejection of this publication to {@code inbox}, as an event of its subscription {@code token}. */
    public void expect(final long registrationId, final Inbox inbox, final int token)
    {
        byRegistrationId.put(registrationId, new Expected(inbox, token));
    }

    /** Ignore rejections of this publication. */
    public void forget(final long registrationId)
    {
        byRegistrationId.remove(registrationId);
    }

    @Override
    public void onPublicationError(final PublicationErrorFrame frame)
    {
        if (frame.errorCode() == ErrorCode.IMAGE_REJECTED.value())
        {
            final Expected expected = byRegistrationId.remove(frame.registrationId());
            if (expected != null)
            {
                expected.inbox.onPublicationRejected(expected.token, frame.sessionId(), frame.errorMessage());
            }
        }
    }
}

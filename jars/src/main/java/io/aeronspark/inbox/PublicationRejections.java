package io.aeronspark.inbox;

import io.aeron.ErrorCode;
import io.aeron.PublicationErrorFrameHandler;
import io.aeron.status.PublicationErrorFrame;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Brings a client's rejections to the inbox that waits for them: the first of each publication, for they are repeated. */
public final class PublicationRejections implements PublicationErrorFrameHandler
{
    private record Waiting(Inbox inbox, int token)
    {
    }

    private final Map<Long, Waiting> waiting = new ConcurrentHashMap<>();

    /** Tell {@code inbox}, of its way in {@code token}, when this publication is rejected. */
    public void expect(final long registrationId, final Inbox inbox, final int token)
    {
        waiting.put(registrationId, new Waiting(inbox, token));
    }

    /** Nobody waits any more. */
    public void forget(final long registrationId)
    {
        waiting.remove(registrationId);
    }

    @Override
    public void onPublicationError(final PublicationErrorFrame frame)
    {
        if (frame.errorCode() == ErrorCode.IMAGE_REJECTED.value())
        {
            final Waiting one = waiting.remove(frame.registrationId());
            if (one != null)
            {
                one.inbox.rejected(one.token, frame.sessionId(), frame.errorMessage());
            }
        }
    }
}

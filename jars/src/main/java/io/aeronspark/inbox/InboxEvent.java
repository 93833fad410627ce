package io.aeronspark.inbox;

import io.aeron.Image;

/**
 * An event of a subscription, to become a record.
 *
 * @param kind         one of the kinds of {@link InboxRecords}, but not {@link InboxRecords#MESSAGE}.
 * @param subscription that it concerns.
 * @param image        that became available or unavailable, otherwise null.
 * @param sessionId    of the image or of the rejected publication, otherwise 0.
 * @param text         the image's source, or the reason.
 */
record InboxEvent(int kind, InboxSubscription subscription, Image image, int sessionId, String text)
{
}

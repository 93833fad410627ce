"""Polls single messages as bytes from Python, image by image, for protocols of a few messages a second."""

from __future__ import annotations

from typing import Any, Final

import jpype

from aeron_spark.aeron.attached_threads import enter_java
from aeron_spark.aeron.client import Client, require_open
from aeron_spark.aeron.exceptions import java_errors
from aeron_spark.aeron.jvm import jclass
from aeron_spark.errors import TransportError
from aeron_spark.transport.api import OfferResult

CHANNEL_ERRORED: Final = -1
MAX_REASON_BYTES: Final = 1_000  # Aeron's limit is 1023


class PolledImage:
    """One image. Its driver never reuses the ``id``, but may reuse the Aeron session id."""

    def __init__(self, image: Any, limit: int) -> None:
        self.id = int(image.correlationId())
        self.session_id = int(image.sessionId())
        self.source = _bracketed(str(image.sourceIdentity()))
        self._image = image
        self._reader = jclass("io.aeronspark.client.ImageReader")(image, limit)

    def poll(self, fragments: int) -> list[bytes | None]:
        """Return the messages that up to ``fragments`` fragments complete; None for a message above the limit."""
        enter_java()
        return [None if message is None else bytes(memoryview(message)) for message in self._reader.poll(fragments)]

    def reject(self, reason: str) -> None:
        """Reject this image; its sender gets the reason. Does nothing if the image is closed."""
        if not self._image.isClosed():
            with java_errors(f"rejecting the image from {self.source}"):
                self._image.reject(reason[:MAX_REASON_BYTES])


class PolledSubscription:
    """A subscription with separately polled images. ``limit``: maximum length of a message in bytes."""

    def __init__(self, client: Client, channel: str, stream_id: int, limit: int) -> None:
        self.client = client
        self.channel = channel
        self._limit = limit
        self._subscription = client.subscription(channel, stream_id)
        self._images: dict[int, PolledImage] = {}

    @property
    def address(self) -> str:
        """The bound ``host:port``, or an empty text before the driver has bound the subscription."""
        if int(self._subscription.channelStatus()) == CHANNEL_ERRORED:
            raise TransportError(f"cannot listen on {self.channel}", remedy="See 'aeron-spark errors'.")
        addresses = self._subscription.localSocketAddresses()
        return str(addresses.get(0)) if addresses.size() else ""

    def images(self) -> list[PolledImage]:
        """Return the images that can still deliver messages, without those that were polled to their end.

        Raises TransportError after the subscription was closed.
        """
        enter_java()
        if self._subscription.isClosed():
            require_open(self.client, "receiving")
            raise TransportError("the subscription is closed", remedy="Try again, with a new subscription.")
        found = {}
        for image in self._subscription.images():
            if image.isEndOfStream():
                continue
            number = int(image.correlationId())
            found[number] = self._images.get(number) or PolledImage(image, self._limit)
        self._images = found
        return list(found.values())

    def close(self) -> None:
        """Close the subscription."""
        with java_errors(f"closing the subscription to {self.channel}"):
            self._subscription.close()


class BytesPublication:
    """An exclusive publication for messages as bytes."""

    def __init__(self, client: Client, channel: str, stream_id: int) -> None:
        self.client = client
        self.channel = channel
        self._publication = client.exclusive_publication(channel, stream_id)
        self.session_id = int(self._publication.sessionId())
        self.max_message_bytes = int(self._publication.maxMessageLength())

    @property
    def connected(self) -> bool:
        """Whether a subscriber is connected."""
        return bool(self._publication.isConnected())

    def offer(self, message: bytes) -> OfferResult | None:
        """Offer one message once. Return None on success, else the reason. Raises TransportError when closed."""
        buffer = jclass("org.agrona.concurrent.UnsafeBuffer")(jpype.JArray(jpype.JByte)(message))
        with java_errors(f"publishing on {self.channel}"):
            position = int(self._publication.offer(buffer, 0, len(message)))
        if position >= 0:
            return None
        result = OfferResult(position)
        if result is OfferResult.CLOSED:
            require_open(self.client, "publishing")
            raise TransportError("the publication is closed", remedy="Try again, with a new publication.")
        return result

    def close(self) -> None:
        """Close the publication. The driver keeps it for the linger timeout of its channel."""
        with java_errors(f"closing the publication on {self.channel}"):
            self._publication.close()


def _bracketed(identity: str) -> str:
    """Add the brackets that Aeron omits from an IPv6 source, such as ``0:0:0:0:0:0:0:1:57806``."""
    host, _, port = identity.rpartition(":")
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else identity

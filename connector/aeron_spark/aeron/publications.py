"""Offers many messages to an exclusive publication in one call to Java, and polls single messages from images."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import jpype
import pyarrow as pa

from aeron_spark.aeron.client import AeronClient, require_open
from aeron_spark.aeron.java_calls import java_errors
from aeron_spark.aeron.jvm import enter_java, jclass
from aeron_spark.errors import TransportError
from aeron_spark.process import bind_to_process
from aeron_spark.transport.api import OfferResult

OFFER_TIMEOUT_NS: Final = 5_000_000  # Java retries during back-pressure for this time; then Python checks its deadline


class BatchPublication:
    """An exclusive publication of ``client`` with its Java helper. Not thread-safe."""

    def __init__(self, client: AeronClient, channel: str, stream_id: int) -> None:
        bind_to_process(self)
        self.client = client
        self._stream = f"{channel} stream {stream_id}"
        self.publication = client.exclusive_publication(channel, stream_id)
        self._helper = jclass("io.aeronspark.writing.BatchOffer")(self.publication)
        self.session_id = int(self.publication.sessionId())
        self.term_length = int(self.publication.termBufferLength())
        self.log_file = Path(client.aeron_dir, "publications", f"{int(self.publication.registrationId())}.logbuffer")
        """The driver deletes it some time after the publication was closed."""
        self.max_message_bytes = int(self.publication.maxMessageLength())

    @property
    def connected(self) -> bool:
        """Whether a subscriber is connected."""
        enter_java()
        return bool(self.publication.isConnected())

    @property
    def closed(self) -> bool:
        """Whether the publication is closed."""
        enter_java()
        return bool(self.publication.isClosed())

    @property
    def position(self) -> int:
        """The position after the last accepted message. Raises TransportError when the publication is closed."""
        enter_java()
        position = int(self.publication.position())
        if position < 0:  # CLOSED; as a position, every recording would seem to have reached it
            raise self._closed("requesting its position")
        return position

    def offer_values(
        self, values: pa.Array[Any], reserved: pa.Array[Any] | None, first: int
    ) -> tuple[int, OfferResult | None]:
        """Offer the values from index ``first``; return the number of accepted ones, and the reason if not all were.

        ``values`` is a binary array without nulls, ``reserved`` an int64 array of its length or None.
        """
        enter_java()
        _, offsets, data = values.buffers()
        accepted = int(
            self._helper.offerValues(
                _address(data, 0),
                _address(offsets, 4 * values.offset),
                0 if reserved is None else _address(reserved.buffers()[1], 8 * reserved.offset),
                first,
                len(values),
                OFFER_TIMEOUT_NS,
            )
        )
        return accepted, None if first + accepted == len(values) else self._result()

    def offer_gathered(self, header: bytes | pa.Buffer, payload: pa.Buffer, reserved: int = 0) -> OfferResult | None:
        """Offer one message of a header and a payload. Return None on success, else the reason."""
        enter_java()
        head = header if isinstance(header, pa.Buffer) else pa.py_buffer(header)
        is_accepted = self._helper.offerGathered(
            head.address, head.size, payload.address, payload.size, reserved, OFFER_TIMEOUT_NS
        )
        return None if is_accepted else self._result()

    def close(self) -> None:
        """Close the publication."""
        enter_java()
        self.publication.close()

    def _result(self) -> OfferResult:
        result = OfferResult(int(self._helper.result()))
        if result is OfferResult.CLOSED:
            raise self._closed("publishing")
        return result

    def _closed(self, action: str) -> TransportError:
        require_open(self.client, action)
        return TransportError(
            f"{action} failed: the publication on {self._stream} was closed",
            remedy="Check that the media driver runs ('aeron-spark doctor'), then write again what is not confirmed.",
        )


def _address(buffer: pa.Buffer | None, offset: int) -> int:
    # Arrow may omit an empty buffer.
    return 0 if buffer is None else buffer.address + offset


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

    def __init__(self, client: AeronClient, channel: str, stream_id: int, limit: int) -> None:
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

    def __init__(self, client: AeronClient, channel: str, stream_id: int) -> None:
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

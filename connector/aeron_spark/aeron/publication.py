"""BatchPublication many messages to one exclusive publication, in Java, with back-pressure as a value."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from aeron_spark.aeron.client import Client, require_open
from aeron_spark.aeron.jvm import jclass
from aeron_spark.errors import TransportError
from aeron_spark.transport.api import OfferResult

TIMEOUT_NS: Final = 5_000_000  # how long Java waits out back-pressure before Python looks at its deadline


class BatchPublication:
    """An exclusive publication of ``client``, and the helper that offers to it. Not thread-safe, as it is not."""

    def __init__(self, client: Client, channel: str, stream_id: int) -> None:
        self.client = client
        self.publication = client.exclusive_publication(channel, stream_id)
        self._helper = jclass("io.aeronspark.writing.BatchOffer")(self.publication)
        self.session_id = int(self.publication.sessionId())
        self.max_message_bytes = int(self.publication.maxMessageLength())

    @property
    def connected(self) -> bool:
        """Whether a subscriber is connected."""
        return bool(self.publication.isConnected())

    @property
    def closed(self) -> bool:
        """Whether nothing can be offered any more."""
        return bool(self.publication.isClosed())

    @property
    def position(self) -> int:
        """The stream position behind the last message taken; TransportError once the publication is closed."""
        position = int(self.publication.position())
        if position < 0:  # CLOSED: a number that every recording has reached
            raise self._closed("asking for its position")
        return position

    def offer_values(
        self, values: pa.Array[Any], reserved: pa.Array[Any] | None, first: int
    ) -> tuple[int, OfferResult | None]:
        """Offer the values from index ``first`` on; return how many were taken, and why not all.

        ``values`` is a binary array without nulls, ``reserved`` an int64 array of its length or None.
        """
        _, offsets, data = values.buffers()
        taken = int(
            self._helper.offerValues(
                _address(data, 0),
                _address(offsets, 4 * values.offset),
                0 if reserved is None else _address(reserved.buffers()[1], 8 * reserved.offset),
                first,
                len(values),
                TIMEOUT_NS,
            )
        )
        return taken, None if first + taken == len(values) else self._result()

    def offer_gathered(self, header: bytes | pa.Buffer, payload: pa.Buffer, reserved: int = 0) -> OfferResult | None:
        """Offer one message of a header and a payload; return None once it is taken, else why not."""
        head = header if isinstance(header, pa.Buffer) else pa.py_buffer(header)
        taken = self._helper.offerGathered(head.address, head.size, payload.address, payload.size, reserved, TIMEOUT_NS)
        return None if taken else self._result()

    def close(self) -> None:
        """Close the publication."""
        self.publication.close()

    def _result(self) -> OfferResult:
        result = OfferResult(int(self._helper.result()))
        if result is OfferResult.CLOSED:
            raise self._closed("publishing")
        return result

    def _closed(self, doing: str) -> TransportError:
        require_open(self.client, doing)
        return TransportError("the publication is closed", remedy="Try again: a new one is made.")


def _address(buffer: pa.Buffer | None, offset: int) -> int:
    # Arrow may leave a buffer out where there is nothing in it.
    return 0 if buffer is None else buffer.address + offset

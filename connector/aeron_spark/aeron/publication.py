"""Offers many messages to one exclusive publication in one call to Java; back-pressure is a result, not an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from aeron_spark.aeron.attached_threads import enter_java
from aeron_spark.aeron.client import Client, require_open
from aeron_spark.aeron.jvm import jclass
from aeron_spark.errors import TransportError
from aeron_spark.process_bound import bind_to_process
from aeron_spark.transport.api import OfferResult

OFFER_TIMEOUT_NS: Final = 5_000_000  # Java retries during back-pressure for this time; then Python checks its deadline


class BatchPublication:
    """An exclusive publication of ``client`` with its Java helper. Not thread-safe."""

    def __init__(self, client: Client, channel: str, stream_id: int) -> None:
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

"""A way out: an exclusive publication that is there at once, and usable when the driver has made it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jpype
import pyarrow as pa

from aeron_spark.aeron.exceptions import describe, java_errors
from aeron_spark.aeron.guard import Ownership
from aeron_spark.aeron.inbox import AeronInbox, first_address
from aeron_spark.aeron.jvm import jclass
from aeron_spark.errors import TransportError, UsageError
from aeron_spark.transport.offer import OfferResult
from aeron_spark.transport.port import Part


class AeronOutgoing:
    """Implements ``transport.port.Outgoing``; it ends with the driver that ``inbox`` uses."""

    def __init__(self, inbox: AeronInbox, channel: str, stream_id: int, session_id: int) -> None:
        self.client = inbox.client
        self.inbox = inbox
        self.session_id = session_id
        self._failure = ""
        self._closed = False
        self._publication: Any = None
        self._offer: Any = None
        self._awaited = False
        self._max_message = 0
        self._owners: Sequence[Ownership] = ()
        with java_errors(f"publishing on {channel} stream {stream_id}"):
            self._registration = int(self.client.aeron.asyncAddExclusivePublication(channel, stream_id))
            inbox.java.expect(self._registration)

    def await_rejection(self, token: int) -> AeronOutgoing:
        """Have the first rejection told by the inbox, of its way in ``token``."""
        self._awaited = True
        self.client.rejections.expect(self._registration, self.inbox.java, token)
        return self

    def owned(self, owners: Sequence[Ownership]) -> AeronOutgoing:
        """Take these registrations back when it is closed."""
        self._owners = owners
        return self

    @property
    def max_message(self) -> int:
        """Bytes of the longest message it takes; 0 before it is ready."""
        return self._max_message if self.ready else 0

    @property
    def ready(self) -> bool:
        """Whether the driver has opened it."""
        if self._publication is None and not self.closed:
            self._settle()
        return self._publication is not None and not self._closed and not self.inbox.lost

    @property
    def connected(self) -> bool:
        """Whether a subscriber is there."""
        return self.ready and bool(self._publication.isConnected())

    @property
    def closed(self) -> bool:
        """Whether nothing can be offered any more."""
        if self._closed or self._failure or self.inbox.lost:
            return True
        if self._publication is not None and not bool(self._publication.isClosed()):
            return False
        return self._publication is not None or bool(self.client.aeron.isClosed())

    @property
    def failure(self) -> str:
        """Why the driver did not open it, or an empty text."""
        return self._failure

    @property
    def local_address(self) -> str:
        """The ``host:port`` it sends from, or an empty text."""
        return first_address(self._publication) if self.ready and not self.closed else ""

    def offer(self, *parts: Part, patience: float = 0.0) -> OfferResult | None:
        """Offer one message made of ``parts``; None when it was taken. See the port."""
        if self._closed or self.inbox.lost:
            return OfferResult.CLOSED
        if not self.ready:
            return OfferResult.CLOSED if self._failure else OfferResult.NOT_CONNECTED
        head, body = _gathered(parts)
        if head.size + body.size > self._max_message:
            raise UsageError(
                f"a message of {head.size + body.size} bytes is longer than the {self._max_message} this channel takes",
                remedy="Send it in pieces, or use larger term buffers on both sides.",
            )
        wait_ns = int(patience * 1e9)
        if self._offer(head.address, head.size, body.address, body.size, 0, wait_ns):
            return None
        return OfferResult(int(self._helper.result()))

    def close(self) -> None:
        """Close it. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        self.inbox.java.forget(self._registration)
        if self._awaited:
            self.client.rejections.forget(self._registration)
        if bool(self.client.aeron.isClosed()):
            return
        try:
            for owner in self._owners:
                owner.close()
            if self._publication is not None:
                self._publication.close()
            else:
                self.client.aeron.asyncRemovePublication(self._registration)
        except (jpype.JException, TransportError):
            if not self.client.closed:
                raise

    def _settle(self) -> None:
        try:
            publication = self.inbox.java.publication(self._registration)
        except jpype.JException as error:
            self._failure = describe(error)
            return
        if publication is not None:
            self._helper = jclass("io.aeronspark.BatchOffer")(publication)
            self._offer = self._helper.offerGathered
            self._max_message = int(publication.maxMessageLength())
            self._publication = publication


def _gathered(parts: tuple[Part, ...]) -> tuple[pa.Buffer, pa.Buffer]:
    """Two pieces of memory: the last part, usually the long one, is never copied."""
    if not parts:
        return _EMPTY, _EMPTY
    before = parts[:-1]
    head = _EMPTY if not before else pa.py_buffer(before[0] if len(before) == 1 else b"".join(before))
    return head, pa.py_buffer(parts[-1])


_EMPTY = pa.py_buffer(b"")

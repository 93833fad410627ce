"""The inbox of an endpoint: many subscriptions polled in one call of Java, which waits without Python's lock."""

from __future__ import annotations

import os
import struct
import time
from typing import Any, Final

import jpype

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.exceptions import describe, java_errors, plain_message
from aeron_spark.aeron.jvm import jclass
from aeron_spark.errors import OptionError, TransportError
from aeron_spark.transport.addresses import HostPort, canonical_host
from aeron_spark.transport.api import (
    IPC,
    MAX_MESSAGE_BYTES,
    DriverLost,
    ImageAvailable,
    ImageUnavailable,
    MessageArrived,
    PublicationRejected,
    SubscriptionFailed,
    TransportEvent,
    ascii_reason,
)

# As io.aeronspark.inbox.InboxRecords lays it out.
RECORD: Final = struct.Struct(
    "="
    "i"  # kind
    "i"  # token
    "q"  # image
    "i"  # length of the payload
    "i"  # session id
)
ARRIVED, JOINED, LEFT, REJECTED, FAILED, JOINED_LATE = range(1, 7)

EVENTS_BESIDE_MESSAGES: Final = 1 << 20  # bytes for more messages than the longest, and for news
A_CLIENTS: Final = 1 << 18  # the same of a client, of which a process may have hundreds
POLL_INTERVAL_S: Final = 1.0  # seconds between two looks at whether the driver is still the same
ENDING: Final = "Aeron client is terminating"  # says ClientConductor from then on, and is closed a moment later
ASK_AGAIN_NS: Final = 300_000_000  # a question for a set-up that was lost is asked again after this time

_IDLE: Final = "org.agrona.concurrent."
IDLE: Final[dict[str, tuple[str, tuple[int, ...]]]] = {
    "busy-spin": ("BusySpinIdleStrategy", ()),  # a core of its own, the shortest latency
    "yielding": ("YieldingIdleStrategy", ()),  # a core, given up to whoever wants it
    "backoff": ("BackoffIdleStrategy", (10, 2, 20_000, 50_000)),  # spins, yields, then sleeps up to 0.05 ms
    "sleeping": ("SleepingIdleStrategy", (1_000_000,)),  # 1 ms each time, next to no processor time
}
# After how long without anything an inbox rests, until the one lookout of its process, or `wake`, calls it. What comes
# then is noticed up to 1 ms later. Those that take a core for the shortest latency never rest.
TIMEOUT_NS: Final = {"backoff": 8_000_000, "sleeping": 5_000_000}


def idle_strategy(name: str) -> Any:
    """Return Agrona's strategy of that name. Raises OptionError where there is none."""
    if name not in IDLE:
        raise OptionError(f"there is no idle strategy {name!r}", remedy=f"Choose one of {', '.join(IDLE)}.")
    kind, arguments = IDLE[name]
    return jclass(_IDLE + kind)(*arguments)


class AeronInbox:
    """Implements ``transport.port.Inbox`` on ``client``'s driver."""

    def __init__(
        self, client: Client, *, idle: str = "backoff", max_message: int = MAX_MESSAGE_BYTES,
        beside: int = EVENTS_BESIDE_MESSAGES,
    ) -> None:  # fmt: skip
        self.client = client
        self.max_message = max_message
        strategy = idle_strategy(idle)
        with java_errors(f"preparing to receive from the media driver in {client.aeron_dir}"):
            self.java = jclass("io.aeronspark.inbox.Inbox")(
                client.aeron, max_message + beside, strategy, TIMEOUT_NS.get(idle, 0)
            )  # fmt: skip
        self._memory = memoryview(self.java.memory()).cast("B").toreadonly()
        self._poll = self.java.poll
        self._pid = os.getpid()
        self._looked_at = time.monotonic()
        self.lost = False
        self._closed = False

    @property
    def dropped(self) -> int:
        """Messages dropped unread: too long, or fragmented on a handshake stream."""
        return int(self.java.dropped())

    @property
    def closed(self) -> bool:
        """Whether it was closed, or its driver is gone."""
        return self._closed or self.lost or self.client.closed

    def add(self, channel: str, stream_id: int, max_message: int, *, whole_only: bool, ask_again: bool = False) -> int:
        """Open a subscription and return its token; whether the driver agrees shows later."""
        if max_message > self.max_message:
            raise OptionError(
                f"messages of {max_message} bytes are wanted where the inbox was made for {self.max_message}",
                remedy="Make it with a larger max_message.",
            )
        with java_errors(f"subscribing to {channel} stream {stream_id}"):
            return int(self.java.add(channel, stream_id, max_message, whole_only, ASK_AGAIN_NS if ask_again else 0))

    def poll(self, timeout: float) -> list[TransportEvent]:
        """Return what has come, waiting at most ``timeout`` seconds; see the port."""
        if self._closed or self.lost:
            time.sleep(max(0.0, timeout))
            return []
        try:
            used = self._poll(int(timeout * 1e9))
        except jpype.JException as error:  # the client ended, or begins to, while this looked at its subscriptions
            if not self.client.closed and ENDING not in str(error):
                raise
            used = 0
        now = time.monotonic()
        if now - self._looked_at > POLL_INTERVAL_S or (not used and bool(self.client.aeron.isClosed())):
            self._looked_at = now
            if self.client.closed and not self._closed:
                self.lost = True
                reason = self.client.last_error or "its directory is gone or new"
                return [DriverLost(f"the media driver in {self.client.aeron_dir} ended ({reason})")]
        return self._events(used) if used else []

    def _events(self, used: int) -> list[TransportEvent]:
        memory, unpack, header = self._memory, RECORD.unpack_from, RECORD.size
        found: list[TransportEvent] = []
        at = 0
        while at < used:
            kind, token, image, length, session_id = unpack(memory, at)
            begin = at + header
            if kind == ARRIVED:
                found.append(MessageArrived(token, image, memory[begin : begin + length]))
            else:
                found.append(_news(kind, token, image, session_id, str(memory[begin : begin + length], "utf-8")))
            at = begin + (length + 7 & ~7)
        return found

    def wake(self) -> None:
        """End the poll that waits now, or the next one, at once."""
        self.java.wake()

    def pause(self, token: int) -> None:
        """Take no more messages of this way in."""
        self.java.pause(token, True)

    def resume(self, token: int) -> None:
        """Take messages of it again."""
        self.java.pause(token, False)

    def reject(self, image: int, reason: str) -> None:
        """Refuse a sender; an unknown image is ignored."""
        text = ascii_reason(reason)
        with java_errors("rejecting an image"):
            self.java.reject(image, text)

    def close_subscription(self, token: int) -> None:
        """Close a way in; an unknown token is ignored."""
        try:
            self.java.remove(token)
        except jpype.JException:
            if not self.client.closed:
                raise

    def ready(self, token: int) -> bool:
        """Whether the driver has opened this way in."""
        return self.subscription(token) is not None

    def subscription(self, token: int) -> Any:
        """Return Aeron's subscription, or None where there is none (yet)."""
        if self._closed or self.lost:  # not `closed`: that asks the file system, and this is asked many times a second
            return None
        try:
            return self.java.subscription(token)
        except jpype.JException as error:
            if self.client.closed:
                return None
            raise TransportError(f"looking for a subscription failed: {describe(error)}") from error

    def local_address(self, token: int) -> str:
        """The ``host:port`` a way in is bound to, or an empty text."""
        subscription = self.subscription(token)
        return "" if subscription is None else first_address(subscription)

    def close(self) -> None:
        """Close every way in."""
        if not self._closed:
            self._closed = True
            self.java.close()


def _news(kind: int, token: int, image: int, session_id: int, text: str) -> TransportEvent:
    if kind in {JOINED, JOINED_LATE}:
        return ImageAvailable(token, image, session_id, source_of(text), late=kind == JOINED_LATE)
    if kind == LEFT:
        return ImageUnavailable(token, image)
    if kind == REJECTED:
        return PublicationRejected(token, session_id, text)
    return SubscriptionFailed(token, plain_message(text))


def source_of(identity: str) -> str:
    """Return the canonical ``host:port`` of an image's source identity: Java leaves IPv6's brackets out."""
    if identity.startswith(IPC):
        return IPC
    host, _, port = identity.rpartition(":")
    return str(HostPort(canonical_host(host.strip("[]")), int(port)))


def first_address(opened: Any) -> str:
    """Return the canonical local ``host:port`` of a publication or subscription, or an empty text."""
    addresses = opened.localSocketAddresses()
    return source_of(str(addresses.get(0))) if addresses.size() else ""

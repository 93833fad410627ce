"""The inbox of an endpoint: polls many subscriptions in one call to Java, which waits without the GIL."""

from __future__ import annotations

import os
import struct
import time
from typing import Any, Final

import jpype

from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.java_calls import describe, java_errors, plain_message
from aeron_spark.aeron.jvm import enter_java, jclass
from aeron_spark.errors import OptionError, TransportError
from aeron_spark.process import bind_to_process
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

# The layout of io.aeronspark.inbox.InboxRecords.
RECORD: Final = struct.Struct(
    "="
    "i"  # kind
    "i"  # token
    "q"  # image
    "i"  # length of the payload
    "i"  # session id
)
MESSAGE, IMAGE_AVAILABLE, IMAGE_UNAVAILABLE, PUBLICATION_REJECTED, SUBSCRIPTION_FAILED, IMAGE_AVAILABLE_LATE = range(
    1, 7
)

# Bytes for further messages and events, besides the longest message.
SERVER_EVENT_BYTES: Final = 1 << 20
CLIENT_EVENT_BYTES: Final = 1 << 18  # a process may have hundreds of clients
DRIVER_CHECK_INTERVAL_S: Final = 0.25  # a look reads mapped memory; a lost driver is noticed within this time
CLIENT_ENDING: Final = (
    "Aeron client is terminating"  # text of ClientConductor's errors just before the client is closed
)
SETUP_RETRY_NS: Final = 300_000_000  # then the inbox asks again for the setup frame of a publication, which may be lost

_IDLE_PACKAGE: Final = "org.agrona.concurrent."
IDLE_STRATEGIES: Final[dict[str, tuple[str, tuple[int, ...]]]] = {
    "busy-spin": ("BusySpinIdleStrategy", ()),  # uses one core completely; the shortest latency
    "yielding": ("YieldingIdleStrategy", ()),  # uses one core, but yields it to other threads
    "backoff": ("BackoffIdleStrategy", (10, 2, 20_000, 50_000)),  # spins, yields, then sleeps up to 0.05 ms
    "sleeping": ("SleepingIdleStrategy", (1_000_000,)),  # sleeps 1 ms; almost no processor time
}
# After this time without events an inbox sleeps, until the thread that polls the client's idle inboxes wakes it, or
# `wake` does. An event is then noticed up to 1 ms later. The other strategies never sleep.
SLEEP_AFTER_NS: Final = {"backoff": 8_000_000, "sleeping": 5_000_000}


def idle_strategy(name: str) -> Any:
    """Return Agrona's idle strategy for the name. Raises OptionError for an unknown name."""
    if name not in IDLE_STRATEGIES:
        raise OptionError(f"unknown idle strategy {name!r}", remedy=f"Choose one of {', '.join(IDLE_STRATEGIES)}.")
    class_name, arguments = IDLE_STRATEGIES[name]
    return jclass(_IDLE_PACKAGE + class_name)(*arguments)


class AeronInbox:
    """Implements ``transport.api.Inbox`` on the driver of ``client``."""

    def __init__(
        self,
        client: AeronClient,
        *,
        idle: str = "backoff",
        max_message: int = MAX_MESSAGE_BYTES,
        event_bytes: int = SERVER_EVENT_BYTES,
    ) -> None:
        bind_to_process(self)
        self.client = client
        self.max_message = max_message
        strategy = idle_strategy(idle)
        with java_errors(f"preparing to receive from the media driver in {client.aeron_dir}"):
            size, sleep_ns = max_message + event_bytes, SLEEP_AFTER_NS.get(idle, 0)
            inbox = jclass("io.aeronspark.inbox.Inbox")
            self._java = inbox(client.aeron, size, strategy, sleep_ns, client.idle_inbox_poller)
        self._memory = memoryview(self.java.memory()).cast("B").toreadonly()
        self._poll = self.java.poll
        self._pid = os.getpid()
        self._driver_checked_at = time.monotonic()
        self.lost = False
        self._closed = False

    @property
    def java(self) -> Any:
        """The inbox of the Java helper."""
        enter_java()
        return self._java

    @property
    def dropped(self) -> int:
        """Number of messages dropped unread: too long, or fragmented on a handshake stream."""
        return int(self.java.dropped())

    @property
    def closed(self) -> bool:
        """Whether the inbox was closed, or its driver has ended."""
        return self._closed or self.lost or self.client.closed

    def add(self, channel: str, stream_id: int, max_message: int, *, drop_fragmented: bool, retry: bool = False) -> int:
        """Request a subscription and return its token. A refusal of the driver arrives later as SubscriptionFailed.

        ``retry``: ask the sender again for a lost setup frame.
        """
        if max_message > self.max_message:
            raise OptionError(
                f"max_message is {max_message} bytes, expected at most the inbox's {self.max_message}",
                remedy="Make the inbox with a larger max_message.",
            )
        with java_errors(f"subscribing to {channel} stream {stream_id}"):
            retry_ns = SETUP_RETRY_NS if retry else 0
            return int(self.java.add(channel, stream_id, max_message, drop_fragmented, retry_ns))

    def poll(self, timeout: float) -> list[TransportEvent]:
        """Return the events that have arrived; wait up to ``timeout`` seconds for the first one. See the protocol."""
        if self._closed or self.lost:
            time.sleep(max(0.0, timeout))
            return []
        enter_java()
        try:
            used = self._poll(int(timeout * 1e9))
        except jpype.JException as error:  # the client ended during the poll, or is about to end
            if not self.client.closed and CLIENT_ENDING not in str(error):
                raise
            used = 0
        now = time.monotonic()
        overdue = now - self._driver_checked_at > DRIVER_CHECK_INTERVAL_S
        if overdue or (not used and bool(self.client.aeron.isClosed())):
            self._driver_checked_at = now
            if self.client.closed and not self._closed:
                reason = self.client.last_error or "its process or its directory is gone"
                self.lost = True  # last: the next poll does not report it again
                return [DriverLost(f"the media driver in {self.client.aeron_dir} ended ({reason})")]
        return self._events(used) if used else []

    def _events(self, used: int) -> list[TransportEvent]:
        memory, unpack, header = self._memory, RECORD.unpack_from, RECORD.size
        found: list[TransportEvent] = []
        at = 0
        while at < used:
            kind, token, image, length, session_id = unpack(memory, at)
            begin = at + header
            if kind == MESSAGE:
                found.append(MessageArrived(token, image, memory[begin : begin + length]))
            else:
                found.append(_event(kind, token, image, session_id, str(memory[begin : begin + length], "utf-8")))
            at = begin + (length + 7 & ~7)
        return found

    def wake(self) -> None:
        """End the current poll, or the next one, immediately."""
        self.java.wake()

    def pause(self, token: int) -> None:
        """Stop reading messages of this subscription."""
        self.java.pause(token, True)

    def resume(self, token: int) -> None:
        """Continue reading messages of this subscription."""
        self.java.pause(token, False)

    def reject(self, image: int, reason: str) -> None:
        """Reject an image; an unknown image is ignored."""
        text = ascii_reason(reason)
        with java_errors("rejecting an image"):
            self.java.reject(image, text)

    def close_subscription(self, token: int) -> None:
        """Close a subscription; an unknown token is ignored."""
        try:
            self.java.remove(token)
        except jpype.JException:
            if not self.client.closed:
                raise

    def ready(self, token: int) -> bool:
        """Whether the driver has opened this subscription."""
        return self.subscription(token) is not None

    def subscription(self, token: int) -> Any:
        """Return Aeron's subscription, or None before it is open and after its close."""
        if self._closed or self.lost:  # not `closed`, which reads the file system: this runs many times a second
            return None
        try:
            return self.java.subscription(token)
        except jpype.JException as error:
            if self.client.closed:
                return None
            raise TransportError(
                f"looking for a subscription failed: {describe(error)}", remedy="Check that the media driver runs."
            ) from error

    def close(self) -> None:
        """Close all subscriptions."""
        if not self._closed:
            self._closed = True
            self.java.close()


def _event(kind: int, token: int, image: int, session_id: int, text: str) -> TransportEvent:
    if kind in {IMAGE_AVAILABLE, IMAGE_AVAILABLE_LATE}:
        return ImageAvailable(token, image, session_id, source_of(text), late=kind == IMAGE_AVAILABLE_LATE)
    if kind == IMAGE_UNAVAILABLE:
        return ImageUnavailable(token, image)
    if kind == PUBLICATION_REJECTED:
        return PublicationRejected(token, session_id, text)
    return SubscriptionFailed(token, plain_message(text))


def source_of(identity: str) -> str:
    """Return the canonical ``host:port`` of an image's source identity, in which Java omits IPv6's brackets."""
    if identity.startswith(IPC):
        return IPC
    host, _, port = identity.rpartition(":")
    return str(HostPort(canonical_host(host.strip("[]")), int(port)))


def first_address(opened: Any) -> str:
    """Return the canonical local ``host:port`` of a publication or subscription, or an empty text if not bound."""
    addresses = opened.localSocketAddresses()
    return source_of(str(addresses.get(0))) if addresses.size() else ""

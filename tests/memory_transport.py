"""A transport within one process, for tests: it can delay, lose, repeat and change messages, and lose its driver."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from aeron_spark.errors import TransportError, UsageError
from aeron_spark.transport import endpoint_channels
from aeron_spark.transport.addresses import HostPort
from aeron_spark.transport.api import (
    HANDSHAKE_MAX_BYTES,
    HANDSHAKE_STREAM_ID,
    HANDSHAKE_TERM_BYTES,
    IPC,
    ChannelPair,
    ChannelSettings,
    DriverLost,
    ImageAvailable,
    ImageUnavailable,
    LinkIds,
    MessageArrived,
    OfferResult,
    Part,
    PublicationRejected,
    SenderUnavailable,
    ServerAddress,
    SubscriptionFailed,
    TransportEvent,
    ascii_reason,
)
from aeron_spark.transport.endpoint_channels import address_in_use

WINDOW_BYTES: Final = 128 * 1024  # Aeron's initial window
SHORT_OFFER_S: Final = 0.01

WILDCARDS: Final = frozenset({"0.0.0.0", "::"})

Key = tuple[object, ...]

Change = Callable[["MemoryPublication", bytes], Iterable[bytes]]


@dataclass(eq=False, slots=True)
class _Subscription:
    inbox: MemoryInbox
    token: int
    key: Key
    session_id: int | None  # the only Aeron session that it receives, or None for all
    max_message: int
    paused: bool = False
    address: str = ""
    pending: deque[tuple[float, TransportEvent]] = field(default_factory=deque)  # with the time of arrival


@dataclass(eq=False, slots=True)
class Image:
    """The connection of one publication with one subscription."""

    id: int
    publication: MemoryPublication
    subscription: _Subscription
    unread: int = 0  # bytes


class MemoryNetwork:
    """All publications, subscriptions and images, with the simulated faults. Thread-safe.

    ``clock`` returns seconds. With a virtual one, its ``sleep`` lets the endpoints work; offers that would wait for
    less than SHORT_OFFER_S do not wait then, because they have locks.

    ``delay``: seconds until an event arrives. ``change``: maps each message to the messages that arrive instead: none
    for a loss, two for a repetition, other bytes for a forgery. ``refusal``: the reason for which nothing can be
    opened, or an empty text.
    """

    def __init__(
        self, *, window: int = WINDOW_BYTES, clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:  # fmt: skip
        self.clock = clock
        self.sleep = sleep
        self.is_virtual = clock is not time.monotonic
        self.delay = 0.0
        self.change: Change | None = None
        self.refusal = ""
        self._window = window
        self._is_interrupted = False
        self._numbers = itertools.count(1)
        self.subscriptions: list[_Subscription] = []
        self.publications: list[MemoryPublication] = []
        self.images: dict[int, Image] = {}
        self.lock = threading.RLock()

    def cut(self) -> None:
        """Interrupt the network: all images become unavailable, and no new ones available before :meth:`heal`."""
        with self.lock:
            self._is_interrupted = True
            for image in list(self.images.values()):
                self._end_image(image)

    def heal(self) -> None:
        """End the interruption; open publications and subscriptions get new images."""
        with self.lock:
            self._is_interrupted = False
            self._match()

    def lose_driver(self, inbox: MemoryInbox, reason: str = "the media driver ended") -> None:
        """End the driver of ``inbox``, with its publications and subscriptions."""
        with self.lock:
            for publication in [one for one in self.publications if one.inbox is inbox]:
                publication.close()
            for subscription in [one for one in self.subscriptions if one.inbox is inbox]:
                self.remove_subscription(subscription)
            inbox.lost = True
            inbox.extra.append(DriverLost(reason))
            inbox.arrived.notify_all()

    def next_arrival(self) -> float | None:
        """Return when the next event arrives that is under way, or None."""
        now = self.clock()
        times = [one.pending[0][0] for one in self.subscriptions if one.pending and one.pending[0][0] > now]
        return min(times, default=None)

    def number(self) -> int:
        """Return a number that was never returned before."""
        return next(self._numbers)

    def open_subscription(self, subscription: _Subscription) -> None:
        with self.lock:
            if self.refusal:
                subscription.inbox.extra.append(SubscriptionFailed(subscription.token, self.refusal))
                subscription.inbox.arrived.notify_all()
                return
            self.subscriptions.append(subscription)
            self._match()

    def remove_subscription(self, subscription: _Subscription) -> None:
        with self.lock:
            subscription.pending.clear()
            self.subscriptions.remove(subscription)
            for image in [one for one in self.images.values() if one.subscription is subscription]:
                self._remove_image(image)

    def open_publication(self, publication: MemoryPublication) -> None:
        with self.lock:
            publication.failure = self.refusal
            if not self.refusal:
                self.publications.append(publication)
                self._match()

    def close_publication(self, publication: MemoryPublication) -> None:
        with self.lock:
            if publication in self.publications:
                self.publications.remove(publication)
            if publication.image is not None:
                self._end_image(publication.image)

    def _match(self) -> None:
        for publication in self.publications:
            if publication.image is not None or self._is_interrupted or publication.rejected:
                continue
            for subscription in self.subscriptions:
                if _receives(subscription, publication):
                    image = Image(self.number(), publication, subscription)
                    self.images[image.id] = publication.image = image
                    publication.inbox.wake()  # because the publication is connected now
                    event = ImageAvailable(
                        subscription.token, image.id, publication.session_id, publication.source, publication.has_sent
                    )
                    self._send(subscription, event)
                    break

    def _remove_image(self, image: Image) -> None:
        del self.images[image.id]
        image.publication.image = None

    def _end_image(self, image: Image) -> None:
        self._remove_image(image)
        self._send(image.subscription, ImageUnavailable(image.subscription.token, image.id))

    def _send(self, subscription: _Subscription, event: TransportEvent) -> None:
        subscription.pending.append((self.clock() + self.delay, event))
        subscription.inbox.arrived.notify_all()

    def _offer(self, publication: MemoryPublication, message: bytes) -> OfferResult | None:
        with self.lock:
            image = publication.image
            if publication.closed:
                return OfferResult.CLOSED
            if image is None:
                return OfferResult.NOT_CONNECTED
            if publication.held or (image.unread and image.unread + len(message) > self._window):
                return OfferResult.BACK_PRESSURED
            publication.has_sent = True
            subscription = image.subscription
            for arriving in (message,) if self.change is None else self.change(publication, message):
                if len(arriving) > subscription.max_message:
                    subscription.inbox.dropped += 1
                else:
                    image.unread += len(arriving)
                    self._send(subscription, MessageArrived(subscription.token, image.id, memoryview(arriving)))
            return None

    def reject_image(self, inbox: MemoryInbox, image_id: int, reason: str) -> None:
        with self.lock:
            image = self.images.get(image_id)
            if image is None or image.subscription.inbox is not inbox:
                return
            publication = image.publication
            publication.rejected = True
            self._end_image(image)
            senders = (one for one in self.subscriptions if one.inbox is publication.inbox)
            sender = next((one for one in senders if one.token == publication.token), None)
            if sender is not None:
                self._send(sender, PublicationRejected(sender.token, publication.session_id, ascii_reason(reason)))

    def take(self, inbox: MemoryInbox) -> list[TransportEvent]:
        events, inbox.extra = inbox.extra, []
        now = self.clock()
        for subscription in inbox.subscriptions.values():
            while subscription.pending and subscription.pending[0][0] <= now:
                event = subscription.pending[0][1]
                if isinstance(event, MessageArrived):
                    if subscription.paused:
                        break
                    if event.image in self.images:
                        self.images[event.image].unread -= len(event.payload)
                events.append(event)
                subscription.pending.popleft()
        return events


class MemoryPublication:
    """Implements ``transport.api.Publication``. With ``held`` it returns BACK_PRESSURED for each offer."""

    def __init__(self, network: MemoryNetwork, inbox: MemoryInbox, token: int, key: Key, session_id: int) -> None:
        self.inbox = inbox
        self.token = token
        self.key = key
        self.session_id = session_id
        self.max_message = 0
        self.source = IPC
        self.local_address = ""
        self.failure = ""
        self.held = False
        self.has_sent = False  # a message, since it was opened
        self.rejected = False
        self.image: Image | None = None  # while a subscription is connected
        self._network = network
        self._closed = False
        self._may_wait = True

    def open(self, *, source: str, term_bytes: int) -> MemoryPublication:
        """Open the publication, which sends from ``source``."""
        self.source = source
        self.local_address = "" if source == IPC else source
        self.max_message = term_bytes // 8
        self._network.open_publication(self)
        return self

    @property
    def ready(self) -> bool:
        """Whether the publication was opened."""
        return not self.closed

    @property
    def connected(self) -> bool:
        """Whether a subscriber is connected."""
        return not self.closed and self.image is not None

    @property
    def closed(self) -> bool:
        """Whether the publication was closed or failed to open."""
        return self._closed or bool(self.failure)

    def offer(self, *parts: Part, timeout_s: float = 0.0) -> OfferResult | None:
        """Offer one message. Return None on success. See the protocol."""
        message = b"".join(parts)
        if not self.closed and len(message) > self.max_message:
            raise UsageError(
                f"message of {len(message)} bytes, expected at most {self.max_message} for this channel",
                remedy="Send it in several messages, or use larger term buffers at both ends.",
            )
        network = self._network
        if network.is_virtual and timeout_s < SHORT_OFFER_S:
            timeout_s = 0.0
        deadline = network.clock() + timeout_s
        while True:
            result = network._offer(self, message)
            if result is not OfferResult.BACK_PRESSURED or not self._may_wait or network.clock() >= deadline:
                return result
            network.sleep(min(1e-4, timeout_s))

    def stop_waiting(self) -> None:
        """Let offers return without a wait. See the protocol."""
        self._may_wait = False

    def close(self) -> None:
        """Close the publication. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._network.close_publication(self)


class MemoryInbox:
    """Implements ``transport.api.Inbox``."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.dropped = 0
        self.lost = False
        self.extra: list[TransportEvent] = []
        self.subscriptions: dict[int, _Subscription] = {}
        self.arrived = threading.Condition(network.lock)
        self._network = network
        self._woken = False
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the inbox was closed, or its driver has ended."""
        return self._closed or self.lost

    def add(self, key: Key | None, session_id: int | None, max_message: int, *, address: str) -> int:
        """Open a subscription and return its token. Without a ``key`` it receives only responses to this client."""
        if self.closed:
            raise TransportError("the inbox is closed", remedy="Make a new one.")
        token = self._network.number()
        key = key or ("response", id(self), token)
        subscription = _Subscription(self, token, key, session_id, max_message, address=address)
        with self._network.lock:
            self.subscriptions[token] = subscription
            self._network.open_subscription(subscription)
        return token

    def poll(self, timeout: float) -> list[TransportEvent]:
        """Return the events that have arrived; wait up to ``timeout`` seconds for the first one."""
        deadline = time.monotonic() + timeout
        with self.arrived:
            while True:
                events = self._network.take(self)
                remaining = deadline - time.monotonic()
                if events or self._woken or remaining <= 0:
                    self._woken = False
                    return events
                self.arrived.wait(min(remaining, self._network.delay or remaining))

    def wake(self) -> None:
        """End the current poll, or the next one, immediately."""
        with self.arrived:
            self._woken = True
            self.arrived.notify_all()

    def pause(self, token: int) -> None:
        """Stop reading messages of this subscription."""
        if token in self.subscriptions:
            self.subscriptions[token].paused = True

    def resume(self, token: int) -> None:
        """Continue reading messages of this subscription."""
        if token in self.subscriptions:
            self.subscriptions[token].paused = False
            self.wake()

    def reject(self, image: int, reason: str) -> None:
        """Reject an image; an unknown image is ignored."""
        self._network.reject_image(self, image, reason)

    def close_subscription(self, token: int) -> None:
        """Close a subscription; an unknown token is ignored."""
        with self._network.lock:
            subscription = self.subscriptions.pop(token, None)
            if subscription is not None and subscription in self._network.subscriptions:
                self._network.remove_subscription(subscription)

    def ready(self, token: int) -> bool:
        """Whether this subscription was opened."""
        return token in self.subscriptions and self.subscriptions[token] in self._network.subscriptions

    def close(self) -> None:
        """Close all subscriptions."""
        self._closed = True
        for token in list(self.subscriptions):
            self.close_subscription(token)
        self.extra.clear()
        self.wake()


def _receives(subscription: _Subscription, publication: MemoryPublication) -> bool:
    if subscription.session_id not in (None, publication.session_id):
        return False
    if subscription.key == publication.key:
        return True
    match subscription.key, publication.key:
        case ("in", medium, str(host), *parts), ("in", other_medium, str(target), *other_parts) if (
            medium == other_medium and parts == other_parts
        ):
            return host in WILDCARDS and (host == "::" or ":" not in target)
    return False


class MemoryServerTransport:
    """Implements ``transport.api.ServerTransport``."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.inbox = MemoryInbox(network)
        self._listeners: dict[int, ServerAddress] = {}  # by token
        self._links: dict[int, ServerAddress] = {}  # by token

    def listen(self, address: ServerAddress, channel_settings: ChannelSettings, cookie_secret: bytes = b"") -> int:
        """Open a handshake subscription. Raises InUseError if another server listens on the address."""
        address = endpoint_channels.check_address(address, own=True)
        key = _data_key(address, HANDSHAKE_STREAM_ID)
        with self.network.lock:
            is_used = any(one.key == key and one.inbox is not self.inbox for one in self.network.subscriptions)
            if self.network.refusal:
                raise TransportError(
                    f"listening on {address} failed: {self.network.refusal}", remedy="Choose another address."
                )
            if is_used:
                raise address_in_use(address.host, address.data_port)
            token = self.inbox.add(key, None, HANDSHAKE_MAX_BYTES, address=_host_port(address, address.data_port))
        self._listeners[token] = address
        return token

    def respond(self, image: int) -> MemoryPublication:
        """Open a publication that only the sender of a handshake image receives."""
        sender, address = self._find_sender(image)
        key = ("response", id(sender.publication.inbox), sender.publication.token)
        publication = MemoryPublication(self.network, self.inbox, 0, key, self.network.number())
        return publication.open(source=_control(address), term_bytes=HANDSHAKE_TERM_BYTES)

    def open_link(self, image: int, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        """Open subscription and publication of a link."""
        _, address = self._find_sender(image)
        token = self.inbox.add(
            _data_key(address, ids.stream_in), ids.session_in, channel_settings.max_message,
            address=_host_port(address, address.data_port),
        )  # fmt: skip
        self._links[token] = address
        publication = MemoryPublication(self.network, self.inbox, token, ("out", ids.stream_out), ids.session_out)
        return ChannelPair(token, publication.open(source=_control(address), term_bytes=channel_settings.term_bytes))

    def close(self) -> None:
        """Close the inbox and all publications."""
        _close(self.network, self.inbox)

    def _find_sender(self, image_id: int) -> tuple[Image, ServerAddress]:
        image = self.network.images.get(image_id)
        if image is not None and image.subscription.inbox is self.inbox:
            token = image.subscription.token
            address = self._listeners.get(token) or self._links.get(token)
            if address is not None:
                return image, address
        raise SenderUnavailable(
            "the sender of a handshake is not available any more", remedy="Wait until it connects again."
        )


class MemoryClientTransport:
    """Implements ``transport.api.ClientTransport`` for a client with the address ``source``."""

    def __init__(self, network: MemoryNetwork, address: ServerAddress, *, source: str = "192.0.2.1:40000") -> None:
        self.network = network
        self.address = endpoint_channels.check_address(address, own=False)
        self.source = IPC if address.media == "ipc" else source
        self.inbox = MemoryInbox(network)

    @property
    def is_ipc(self) -> bool:
        """Whether paths use shared memory."""
        return self.address.media == "ipc"

    def open_path(self) -> ChannelPair:
        """Open the channel pair of a handshake."""
        token = self.inbox.add(None, None, HANDSHAKE_MAX_BYTES, address=self._local_address())
        return ChannelPair(token, self._open_path_publication(token))

    def reopen_path(self, pair: ChannelPair) -> ChannelPair:
        """Open a new publication for the same subscription."""
        return ChannelPair(pair.token, self._open_path_publication(pair.token))

    def open_link(self, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        """Open subscription and publication of a link."""
        out: Key = ("out", ids.stream_out)
        token = self.inbox.add(out, ids.session_out, channel_settings.max_message, address=self._local_address())
        key = _data_key(self.address, ids.stream_in)
        publication = MemoryPublication(self.network, self.inbox, token, key, ids.session_in)
        return ChannelPair(token, publication.open(source=self.source, term_bytes=channel_settings.term_bytes))

    def close(self) -> None:
        """Close the inbox and all publications."""
        _close(self.network, self.inbox)

    def _open_path_publication(self, token: int) -> MemoryPublication:
        key = _data_key(self.address, HANDSHAKE_STREAM_ID)
        publication = MemoryPublication(self.network, self.inbox, token, key, self.network.number())
        return publication.open(source=self.source, term_bytes=HANDSHAKE_TERM_BYTES)

    def _local_address(self) -> str:
        return "" if self.source == IPC else self.source


def _data_key(address: ServerAddress, stream_id: int) -> Key:
    if address.media == "ipc":
        return "in", "ipc", "", 0, stream_id
    return "in", "udp", address.host, address.data_port, stream_id


def _host_port(address: ServerAddress, port: int) -> str:
    return "" if address.media == "ipc" else str(HostPort(address.host, port))


def _control(address: ServerAddress) -> str:
    return _host_port(address, address.control_port) or IPC


def _close(network: MemoryNetwork, inbox: MemoryInbox) -> None:
    for publication in [one for one in network.publications if one.inbox is inbox]:
        publication.close()
    inbox.close()

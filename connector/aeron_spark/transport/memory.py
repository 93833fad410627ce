"""What is open in the transport within one process: who hears whom, what is under way, and the faults wanted."""

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

WILDCARDS: Final = frozenset({"0.0.0.0", "::"})

Key = tuple[object, ...]

Change = Callable[["MemoryPublication", bytes], Iterable[bytes]]


@dataclass(eq=False, slots=True)
class _Subscription:
    inbox: MemoryInbox
    token: int
    key: Key
    session_id: int | None  # the only one it hears, or None for all
    max_message: int
    paused: bool = False
    address: str = ""
    waiting: deque[tuple[float, TransportEvent]] = field(default_factory=deque)


@dataclass(eq=False, slots=True)
class Image:
    """One publication as one way in hears it."""

    id: int
    publication: MemoryPublication
    way: _Subscription
    unread: int = 0


class MemoryNetwork:
    """Everything that is open, and the faults. Thread-safe; ``clock`` gives seconds.

    ``delay`` is how long each event travels, in seconds. ``change`` sees every message and returns what arrives
    instead: nothing for a loss, two for a repetition, other bytes for a forgery. ``refusal``, where not empty, is why
    nothing new can be opened.
    """

    def __init__(self, *, window: int = WINDOW_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.delay = 0.0
        self.change: Change | None = None
        self.refusal = ""
        self._window = window
        self._cut = False
        self._numbers = itertools.count(1)
        self.ways: list[_Subscription] = []
        self.publications: list[MemoryPublication] = []
        self.images: dict[int, Image] = {}
        self.lock = threading.RLock()

    def cut(self) -> None:
        """Interrupt everything: every image leaves, and none joins before :meth:`heal`."""
        with self.lock:
            self._cut = True
            for link in list(self.images.values()):
                self._unlink(link)

    def heal(self) -> None:
        """End the interruption; what is still open is heard again, as new images."""
        with self.lock:
            self._cut = False
            self._match()

    def lose_driver(self, inbox: MemoryInbox, reason: str = "the media driver ended") -> None:
        """End the driver that ``inbox`` uses, and everything opened through it."""
        with self.lock:
            for publication in [one for one in self.publications if one.inbox is inbox]:
                publication.close()
            for way in [one for one in self.ways if one.inbox is inbox]:
                self.close_subscription_of(way)
            inbox.lost = True
            inbox.extra.append(DriverLost(reason))
            inbox.arrived.notify_all()

    def number(self) -> int:
        """Return a number that was never given before."""
        return next(self._numbers)

    def open_subscription(self, way: _Subscription) -> None:
        with self.lock:
            if self.refusal:
                way.inbox.extra.append(SubscriptionFailed(way.token, self.refusal))
                way.inbox.arrived.notify_all()
                return
            self.ways.append(way)
            self._match()

    def close_subscription_of(self, way: _Subscription) -> None:
        with self.lock:
            way.waiting.clear()
            self.ways.remove(way)
            for link in [one for one in self.images.values() if one.way is way]:
                self._forget(link)

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
                self._unlink(publication.image)

    def _match(self) -> None:
        for publication in self.publications:
            if publication.image is not None or self._cut or publication.rejected:
                continue
            for way in self.ways:
                if _hears(way, publication):
                    link = Image(self.number(), publication, way)
                    self.images[link.id] = publication.image = link
                    publication.inbox.wake()  # it is connected
                    late = publication.said
                    self._send(
                        way, ImageAvailable(way.token, link.id, publication.session_id, publication.source, late)
                    )
                    break

    def _forget(self, link: Image) -> None:
        del self.images[link.id]
        link.publication.image = None

    def _unlink(self, link: Image) -> None:
        self._forget(link)
        self._send(link.way, ImageUnavailable(link.way.token, link.id))

    def _send(self, way: _Subscription, event: TransportEvent) -> None:
        way.waiting.append((self.clock() + self.delay, event))
        way.inbox.arrived.notify_all()

    def _offer(self, publication: MemoryPublication, message: bytes) -> OfferResult | None:
        with self.lock:
            link = publication.image
            if publication.closed:
                return OfferResult.CLOSED
            if link is None:
                return OfferResult.NOT_CONNECTED
            if publication.held or (link.unread and link.unread + len(message) > self._window):
                return OfferResult.BACK_PRESSURED
            publication.said = True
            for arriving in (message,) if self.change is None else self.change(publication, message):
                if len(arriving) > link.way.max_message:
                    link.way.inbox.dropped += 1
                else:
                    link.unread += len(arriving)
                    self._send(link.way, MessageArrived(link.way.token, link.id, memoryview(arriving)))
            return None

    def reject_image(self, inbox: MemoryInbox, image: int, reason: str) -> None:
        with self.lock:
            link = self.images.get(image)
            if link is None or link.way.inbox is not inbox:
                return
            publication = link.publication
            publication.rejected = True
            self._unlink(link)
            told = next(
                (way for way in self.ways if way.inbox is publication.inbox and way.token == publication.token), None
            )
            if told is not None:
                self._send(told, PublicationRejected(told.token, publication.session_id, ascii_reason(reason)))

    def take(self, inbox: MemoryInbox) -> list[TransportEvent]:
        found, inbox.extra = inbox.extra, []
        now = self.clock()
        for way in inbox.ways.values():
            while way.waiting and way.waiting[0][0] <= now:
                event = way.waiting[0][1]
                if isinstance(event, MessageArrived):
                    if way.paused:
                        break
                    if event.image in self.images:
                        self.images[event.image].unread -= len(event.payload)
                found.append(event)
                way.waiting.popleft()
        return found


class MemoryPublication:
    """Implements ``transport.port.Outgoing``. ``held`` makes it answer as if the other side were slow."""

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
        self.said = False  # something, ever
        self.rejected = False
        self.image: Image | None = None  # of it, where a way in hears it
        self._network = network
        self._closed = False

    def open(self, *, source: str, term_bytes: int) -> MemoryPublication:
        """Open it: it sends from ``source``."""
        self.source = source
        self.local_address = "" if source == IPC else source
        self.max_message = term_bytes // 8
        self._network.open_publication(self)
        return self

    @property
    def ready(self) -> bool:
        """Whether it was opened."""
        return not self.closed

    @property
    def connected(self) -> bool:
        """Whether a subscriber is there."""
        return not self.closed and self.image is not None

    @property
    def closed(self) -> bool:
        """Whether nothing can be offered any more."""
        return self._closed or bool(self.failure)

    def offer(self, *parts: Part, timeout_s: float = 0.0) -> OfferResult | None:
        """Offer one message; back-pressure is waited out as the port says."""
        message = b"".join(parts)
        if not self.closed and len(message) > self.max_message:
            raise UsageError(
                f"a message of {len(message)} bytes is longer than the {self.max_message} this channel takes",
                remedy="Send it in pieces, or use larger term buffers on both sides.",
            )
        deadline = time.monotonic() + timeout_s
        while True:
            result = self._network._offer(self, message)
            if result is not OfferResult.BACK_PRESSURED or time.monotonic() >= deadline:
                return result
            time.sleep(min(1e-4, timeout_s))

    def close(self) -> None:
        """Close it; closing twice does nothing."""
        if not self._closed:
            self._closed = True
            self._network.close_publication(self)


class MemoryInbox:
    """Implements ``transport.port.Inbox``."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.dropped = 0
        self.lost = False
        self.extra: list[TransportEvent] = []
        self.ways: dict[int, _Subscription] = {}
        self.arrived = threading.Condition(network.lock)
        self._network = network
        self._woken = False
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether it was closed, or its driver is gone."""
        return self._closed or self.lost

    def add(self, key: Key | None, session_id: int | None, max_message: int, *, address: str) -> int:
        """Open a way in and return its token; without a ``key`` it is for answers alone."""
        if self.closed:
            raise TransportError("the inbox is closed", remedy="Make a new one.")
        token = self._network.number()
        way = _Subscription(self, token, key or ("answer", id(self), token), session_id, max_message, address=address)
        with self._network.lock:
            self.ways[way.token] = way
            self._network.open_subscription(way)
        return way.token

    def poll(self, timeout: float) -> list[TransportEvent]:
        """Return what has come, waiting at most ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        with self.arrived:
            while True:
                found = self._network.take(self)
                remaining = deadline - time.monotonic()
                if found or self._woken or remaining <= 0:
                    self._woken = False
                    return found
                self.arrived.wait(min(remaining, self._network.delay or remaining))

    def wake(self) -> None:
        """End the poll that waits now, or the next one, at once."""
        with self.arrived:
            self._woken = True
            self.arrived.notify_all()

    def pause(self, token: int) -> None:
        """Take no more messages of this way in."""
        if token in self.ways:
            self.ways[token].paused = True

    def resume(self, token: int) -> None:
        """Take messages of it again."""
        if token in self.ways:
            self.ways[token].paused = False
            self.wake()

    def reject(self, image: int, reason: str) -> None:
        """Refuse a sender; an unknown image is ignored."""
        self._network.reject_image(self, image, reason)

    def close_subscription(self, token: int) -> None:
        """Close a way in; an unknown token is ignored."""
        with self._network.lock:
            way = self.ways.pop(token, None)
            if way is not None and way in self._network.ways:
                self._network.close_subscription_of(way)

    def ready(self, token: int) -> bool:
        """Whether this way in was opened."""
        return token in self.ways and self.ways[token] in self._network.ways

    def local_address(self, token: int) -> str:
        """The ``host:port`` a way in is bound to, or an empty text."""
        return self.ways[token].address if token in self.ways else ""

    def close(self) -> None:
        """Close every way in."""
        self._closed = True
        for token in list(self.ways):
            self.close_subscription(token)
        self.wake()


def _hears(way: _Subscription, publication: MemoryPublication) -> bool:
    if way.session_id not in (None, publication.session_id):
        return False
    if way.key == publication.key:
        return True
    match way.key, publication.key:
        case ("in", medium, str(host), *rest), ("in", other, str(wanted), *there) if medium == other and rest == there:
            return host in WILDCARDS and (host == "::" or ":" not in wanted)
    return False


class MemoryServerTransport:
    """Implements ``transport.port.Listening``."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.inbox = MemoryInbox(network)
        self._places: dict[int, ServerAddress] = {}
        self._duologues: dict[int, ServerAddress] = {}

    def listen(self, place: ServerAddress, channel_settings: ChannelSettings) -> int:
        """Open a handshake subscription. Raises InUseError where another server listens there."""
        place = endpoint_channels.check_address(place, own=True)
        key = _data_key(place, HANDSHAKE_STREAM_ID)
        with self.network.lock:
            taken = any(way.key == key and way.inbox is not self.inbox for way in self.network.ways)
            if self.network.refusal:
                raise TransportError(f"listening on {place} failed: {self.network.refusal}")
            if taken:
                raise address_in_use(place.host, place.data_port)
            token = self.inbox.add(key, None, HANDSHAKE_MAX_BYTES, address=_address(place, place.data_port))
        self._places[token] = place
        return token

    def respond(self, image: int) -> MemoryPublication:
        """Open a publication that reaches the sender of a handshake image, and nobody else."""
        link, place = self._known(image)
        key = ("answer", id(link.publication.inbox), link.publication.token)
        publication = MemoryPublication(self.network, self.inbox, 0, key, self.network.number())
        return publication.open(source=_control(place), term_bytes=HANDSHAKE_TERM_BYTES)

    def open_link(self, image: int, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        """Open both ways of a duologue."""
        _, place = self._known(image)
        address = _address(place, place.data_port)
        token = self.inbox.add(
            _data_key(place, ids.stream_in), ids.session_in, channel_settings.max_message, address=address
        )
        self._duologues[token] = place
        publication = MemoryPublication(self.network, self.inbox, token, ("out", ids.stream_out), ids.session_out)
        return ChannelPair(token, publication.open(source=_control(place), term_bytes=channel_settings.term_bytes))

    def close(self) -> None:
        """Close the inbox and every way out."""
        _close(self.network, self.inbox)

    def _known(self, image: int) -> tuple[Image, ServerAddress]:
        link = self.network.images.get(image)
        place = None if link is None else self._places.get(link.way.token) or self._duologues.get(link.way.token)
        if link is None or link.way.inbox is not self.inbox or place is None:
            raise SenderUnavailable("the sender of a handshake has gone", remedy="It may come again.")
        return link, place


class MemoryClientTransport:
    """Implements ``transport.port.Dialing`` for a client at ``source``."""

    def __init__(self, network: MemoryNetwork, place: ServerAddress, *, source: str = "192.0.2.1:40000") -> None:
        self.network = network
        self.place = endpoint_channels.check_address(place, own=False)
        self.source = IPC if place.media == "ipc" else source
        self.inbox = MemoryInbox(network)

    def open_path(self) -> ChannelPair:
        """Open the handshake pair."""
        token = self.inbox.add(None, None, HANDSHAKE_MAX_BYTES, address=self._address())
        return ChannelPair(token, self._path(token))

    def reopen_path(self, pair: ChannelPair) -> ChannelPair:
        """Open a new way out beside the same way in."""
        return ChannelPair(pair.token, self._path(pair.token))

    def open_link(self, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        """Open both ways of a duologue."""
        out: Key = ("out", ids.stream_out)
        token = self.inbox.add(out, ids.session_out, channel_settings.max_message, address=self._address())
        key = _data_key(self.place, ids.stream_in)
        publication = MemoryPublication(self.network, self.inbox, token, key, ids.session_in)
        return ChannelPair(token, publication.open(source=self.source, term_bytes=channel_settings.term_bytes))

    def close(self) -> None:
        """Close the inbox and every way out."""
        _close(self.network, self.inbox)

    def _path(self, token: int) -> MemoryPublication:
        key = _data_key(self.place, HANDSHAKE_STREAM_ID)
        publication = MemoryPublication(self.network, self.inbox, token, key, self.network.number())
        return publication.open(source=self.source, term_bytes=HANDSHAKE_TERM_BYTES)

    def _address(self) -> str:
        return "" if self.source == IPC else self.source


def _data_key(place: ServerAddress, stream_id: int) -> Key:
    if place.media == "ipc":
        return "in", "ipc", "", 0, stream_id
    return "in", "udp", place.host, place.data_port, stream_id


def _address(place: ServerAddress, port: int) -> str:
    return "" if place.media == "ipc" else str(HostPort(place.host, port))


def _control(place: ServerAddress) -> str:
    return _address(place, place.control_port) or IPC


def _close(network: MemoryNetwork, inbox: MemoryInbox) -> None:
    for publication in [one for one in network.publications if one.inbox is inbox]:
        publication.close()
    inbox.close()

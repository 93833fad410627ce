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
from aeron_spark.transport.addresses import Endpoint
from aeron_spark.transport.api import (
    HANDSHAKE_MAX_BYTES,
    HANDSHAKE_STREAM_ID,
    HANDSHAKE_TERM_BYTES,
    IPC,
    Arrived,
    DuologueIds,
    Event,
    Failed,
    ImageJoined,
    ImageLeft,
    Lost,
    OfferResult,
    Pair,
    Part,
    Place,
    Rejected,
    SenderGone,
    Wishes,
    ascii_reason,
)
from aeron_spark.transport.endpoint_channels import address_in_use

WINDOW_BYTES: Final = 128 * 1024  # Aeron's initial window

WILDCARDS: Final = frozenset({"0.0.0.0", "::"})

Key = tuple[object, ...]

Change = Callable[["MemoryOutgoing", bytes], Iterable[bytes]]


@dataclass(eq=False, slots=True)
class _Way:
    inbox: MemoryInbox
    token: int
    key: Key
    session_id: int | None  # the only one it hears, or None for all
    max_message: int
    paused: bool = False
    address: str = ""
    waiting: deque[tuple[float, Event]] = field(default_factory=deque)


@dataclass(eq=False, slots=True)
class Image:
    """One publication as one way in hears it."""

    id: int
    outgoing: MemoryOutgoing
    way: _Way
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
        self.ways: list[_Way] = []
        self.outgoing: list[MemoryOutgoing] = []
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
            for outgoing in [one for one in self.outgoing if one.inbox is inbox]:
                outgoing.close()
            for way in [one for one in self.ways if one.inbox is inbox]:
                self.close_way_of(way)
            inbox.lost = True
            inbox.extra.append(Lost(reason))
            inbox.arrived.notify_all()

    def number(self) -> int:
        """Return a number that was never given before."""
        return next(self._numbers)

    def open_way(self, way: _Way) -> None:
        with self.lock:
            if self.refusal:
                way.inbox.extra.append(Failed(way.token, self.refusal))
                way.inbox.arrived.notify_all()
                return
            self.ways.append(way)
            self._match()

    def close_way_of(self, way: _Way) -> None:
        with self.lock:
            way.waiting.clear()
            self.ways.remove(way)
            for link in [one for one in self.images.values() if one.way is way]:
                self._forget(link)

    def open_outgoing(self, outgoing: MemoryOutgoing) -> None:
        with self.lock:
            outgoing.failure = self.refusal
            if not self.refusal:
                self.outgoing.append(outgoing)
                self._match()

    def close_outgoing(self, outgoing: MemoryOutgoing) -> None:
        with self.lock:
            if outgoing in self.outgoing:
                self.outgoing.remove(outgoing)
            if outgoing.image is not None:
                self._unlink(outgoing.image)

    def _match(self) -> None:
        for outgoing in self.outgoing:
            if outgoing.image is not None or self._cut or outgoing.rejected:
                continue
            for way in self.ways:
                if _hears(way, outgoing):
                    link = Image(self.number(), outgoing, way)
                    self.images[link.id] = outgoing.image = link
                    outgoing.inbox.wake()  # it is connected
                    late = outgoing.said
                    self._send(way, ImageJoined(way.token, link.id, outgoing.session_id, outgoing.source, late))
                    break

    def _forget(self, link: Image) -> None:
        del self.images[link.id]
        link.outgoing.image = None

    def _unlink(self, link: Image) -> None:
        self._forget(link)
        self._send(link.way, ImageLeft(link.way.token, link.id))

    def _send(self, way: _Way, event: Event) -> None:
        way.waiting.append((self.clock() + self.delay, event))
        way.inbox.arrived.notify_all()

    def _offer(self, outgoing: MemoryOutgoing, message: bytes) -> OfferResult | None:
        with self.lock:
            link = outgoing.image
            if outgoing.closed:
                return OfferResult.CLOSED
            if link is None:
                return OfferResult.NOT_CONNECTED
            if outgoing.held or (link.unread and link.unread + len(message) > self._window):
                return OfferResult.BACK_PRESSURED
            outgoing.said = True
            for arriving in (message,) if self.change is None else self.change(outgoing, message):
                if len(arriving) > link.way.max_message:
                    link.way.inbox.dropped += 1
                else:
                    link.unread += len(arriving)
                    self._send(link.way, Arrived(link.way.token, link.id, memoryview(arriving)))
            return None

    def reject_image(self, inbox: MemoryInbox, image: int, reason: str) -> None:
        with self.lock:
            link = self.images.get(image)
            if link is None or link.way.inbox is not inbox:
                return
            outgoing = link.outgoing
            outgoing.rejected = True
            self._unlink(link)
            told = next((way for way in self.ways if way.inbox is outgoing.inbox and way.token == outgoing.token), None)
            if told is not None:
                self._send(told, Rejected(told.token, outgoing.session_id, ascii_reason(reason)))

    def take(self, inbox: MemoryInbox) -> list[Event]:
        found, inbox.extra = inbox.extra, []
        now = self.clock()
        for way in inbox.ways.values():
            while way.waiting and way.waiting[0][0] <= now:
                event = way.waiting[0][1]
                if isinstance(event, Arrived):
                    if way.paused:
                        break
                    if event.image in self.images:
                        self.images[event.image].unread -= len(event.payload)
                found.append(event)
                way.waiting.popleft()
        return found


class MemoryOutgoing:
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

    def open(self, *, source: str, term_bytes: int) -> MemoryOutgoing:
        """Open it: it sends from ``source``."""
        self.source = source
        self.local_address = "" if source == IPC else source
        self.max_message = term_bytes // 8
        self._network.open_outgoing(self)
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

    def offer(self, *parts: Part, patience: float = 0.0) -> OfferResult | None:
        """Offer one message; back-pressure is waited out as the port says."""
        message = b"".join(parts)
        if not self.closed and len(message) > self.max_message:
            raise UsageError(
                f"a message of {len(message)} bytes is longer than the {self.max_message} this channel takes",
                remedy="Send it in pieces, or use larger term buffers on both sides.",
            )
        deadline = time.monotonic() + patience
        while True:
            result = self._network._offer(self, message)
            if result is not OfferResult.BACK_PRESSURED or time.monotonic() >= deadline:
                return result
            time.sleep(min(1e-4, patience))

    def close(self) -> None:
        """Close it; closing twice does nothing."""
        if not self._closed:
            self._closed = True
            self._network.close_outgoing(self)


class MemoryInbox:
    """Implements ``transport.port.Inbox``."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.dropped = 0
        self.lost = False
        self.extra: list[Event] = []
        self.ways: dict[int, _Way] = {}
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
        way = _Way(self, token, key or ("answer", id(self), token), session_id, max_message, address=address)
        with self._network.lock:
            self.ways[way.token] = way
            self._network.open_way(way)
        return way.token

    def poll(self, timeout: float) -> list[Event]:
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

    def close_way(self, token: int) -> None:
        """Close a way in; an unknown token is ignored."""
        with self._network.lock:
            way = self.ways.pop(token, None)
            if way is not None and way in self._network.ways:
                self._network.close_way_of(way)

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
            self.close_way(token)
        self.wake()


def _hears(way: _Way, outgoing: MemoryOutgoing) -> bool:
    if way.session_id not in (None, outgoing.session_id):
        return False
    if way.key == outgoing.key:
        return True
    match way.key, outgoing.key:
        case ("in", medium, str(host), *rest), ("in", other, str(wanted), *there) if medium == other and rest == there:
            return host in WILDCARDS and (host == "::" or ":" not in wanted)
    return False


class MemoryListening:
    """Implements ``transport.port.Listening``."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.inbox = MemoryInbox(network)
        self._places: dict[int, Place] = {}
        self._duologues: dict[int, Place] = {}

    def listen(self, place: Place, wishes: Wishes) -> int:
        """Open a handshake subscription. Raises InUseError where another server listens there."""
        place = endpoint_channels.check_place(place, own=True)
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

    def respond(self, image: int) -> MemoryOutgoing:
        """Open a publication that reaches the sender of a handshake image, and nobody else."""
        link, place = self._known(image)
        key = ("answer", id(link.outgoing.inbox), link.outgoing.token)
        outgoing = MemoryOutgoing(self.network, self.inbox, 0, key, self.network.number())
        return outgoing.open(source=_control(place), term_bytes=HANDSHAKE_TERM_BYTES)

    def open_duologue(self, image: int, ids: DuologueIds, wishes: Wishes) -> Pair:
        """Open both ways of a duologue."""
        _, place = self._known(image)
        address = _address(place, place.data_port)
        token = self.inbox.add(_data_key(place, ids.stream_in), ids.session_in, wishes.max_message, address=address)
        self._duologues[token] = place
        outgoing = MemoryOutgoing(self.network, self.inbox, token, ("out", ids.stream_out), ids.session_out)
        return Pair(token, outgoing.open(source=_control(place), term_bytes=wishes.term_bytes))

    def close(self) -> None:
        """Close the inbox and every way out."""
        _close(self.network, self.inbox)

    def _known(self, image: int) -> tuple[Image, Place]:
        link = self.network.images.get(image)
        place = None if link is None else self._places.get(link.way.token) or self._duologues.get(link.way.token)
        if link is None or link.way.inbox is not self.inbox or place is None:
            raise SenderGone("the sender of a handshake has gone", remedy="It may come again.")
        return link, place


class MemoryDialing:
    """Implements ``transport.port.Dialing`` for a client at ``source``."""

    def __init__(self, network: MemoryNetwork, place: Place, *, source: str = "192.0.2.1:40000") -> None:
        self.network = network
        self.place = endpoint_channels.check_place(place, own=False)
        self.source = IPC if place.media == "ipc" else source
        self.inbox = MemoryInbox(network)

    def knock(self) -> Pair:
        """Open the handshake pair."""
        token = self.inbox.add(None, None, HANDSHAKE_MAX_BYTES, address=self._address())
        return Pair(token, self._knocking(token))

    def knock_again(self, pair: Pair) -> Pair:
        """Open a new way out beside the same way in."""
        return Pair(pair.token, self._knocking(pair.token))

    def open_duologue(self, ids: DuologueIds, wishes: Wishes) -> Pair:
        """Open both ways of a duologue."""
        out: Key = ("out", ids.stream_out)
        token = self.inbox.add(out, ids.session_out, wishes.max_message, address=self._address())
        key = _data_key(self.place, ids.stream_in)
        outgoing = MemoryOutgoing(self.network, self.inbox, token, key, ids.session_in)
        return Pair(token, outgoing.open(source=self.source, term_bytes=wishes.term_bytes))

    def close(self) -> None:
        """Close the inbox and every way out."""
        _close(self.network, self.inbox)

    def _knocking(self, token: int) -> MemoryOutgoing:
        key = _data_key(self.place, HANDSHAKE_STREAM_ID)
        outgoing = MemoryOutgoing(self.network, self.inbox, token, key, self.network.number())
        return outgoing.open(source=self.source, term_bytes=HANDSHAKE_TERM_BYTES)

    def _address(self) -> str:
        return "" if self.source == IPC else self.source


def _data_key(place: Place, stream_id: int) -> Key:
    if place.media == "ipc":
        return "in", "ipc", "", 0, stream_id
    return "in", "udp", place.host, place.data_port, stream_id


def _address(place: Place, port: int) -> str:
    return "" if place.media == "ipc" else str(Endpoint(place.host, port))


def _control(place: Place) -> str:
    return _address(place, place.control_port) or IPC


def _close(network: MemoryNetwork, inbox: MemoryInbox) -> None:
    for outgoing in [one for one in network.outgoing if one.inbox is inbox]:
        outgoing.close()
    inbox.close()

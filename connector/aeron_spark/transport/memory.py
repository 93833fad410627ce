"""A transport within one process, for tests of what is written against the port: no driver, and faults on demand.

It behaves as Aeron does where it matters: order within an image, windows and back-pressure, images that join and leave,
rejections that reach the sender alone, answers that reach one client alone. Payloads arrive as bytes of their own.
"""

from __future__ import annotations

from aeron_spark.errors import TransportError
from aeron_spark.transport import wiring
from aeron_spark.transport.addresses import Endpoint
from aeron_spark.transport.memory_network import Image, Key, MemoryInbox, MemoryNetwork, MemoryOutgoing
from aeron_spark.transport.places import address_in_use
from aeron_spark.transport.port import (
    HANDSHAKE_MAX_BYTES,
    HANDSHAKE_STREAM_ID,
    HANDSHAKE_TERM_BYTES,
    IPC,
    DuologueIds,
    Pair,
    Place,
    SenderGone,
    Wishes,
)

__all__ = ["MemoryDialing", "MemoryListening", "MemoryNetwork"]


class MemoryListening:
    """Implements ``transport.port.Listening``."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.inbox = MemoryInbox(network)
        self._places: dict[int, Place] = {}
        self._duologues: dict[int, Place] = {}

    def listen(self, place: Place, wishes: Wishes) -> int:
        """Open a handshake subscription. Raises InUseError where another server listens there."""
        place = wiring.check_place(place, own=True)
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
        self.place = wiring.check_place(place, own=False)
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

"""Real channels with an ear on them: what is offered is written down, and may be changed before the driver gets it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, cast

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.endpoint_transport import AeronClientTransport, AeronServerTransport
from aeron_spark.protocol import handshake_packets
from aeron_spark.protocol.frame_cipher import ENCRYPTED, HEADER
from aeron_spark.transport.api import (
    ChannelPair,
    ChannelSettings,
    LinkIds,
    OfferResult,
    Part,
    Publication,
    ServerAddress,
)
from aeron_spark.transport.endpoint_channels import ClientPorts

TYPE: Final = 3  # where a packet of the handshake says its type
KEY_HASH: Final = slice(handshake_packets.PREFIX.size, handshake_packets.PREFIX.size + handshake_packets.HASH_BYTES)


class Said(NamedTuple):
    """A message that one end has sent; ``session_id`` is its publication's."""

    to_server: bool
    session_id: int
    data: bytes

    @property
    def packet(self) -> int:
        """Which packet of the handshake it is; 0 for none."""
        return self.data[TYPE] if self.data[:2] == handshake_packets.MAGIC else 0

    @property
    def counter(self) -> int | None:
        """The counter of the sealed frame that it is, or that it brings."""
        frame = (
            self.data[KEY_HASH.stop :]
            if self.packet in {handshake_packets.DONE_ACK, handshake_packets.FAILED}
            else self.data
        )
        return int(HEADER.unpack_from(frame)[-1]) if frame[0] == ENCRYPTED else None


class Tap:
    """``change``, where it is set, says what leaves instead of a message: nothing, another one, or several."""

    def __init__(self) -> None:
        self.said: list[Said] = []
        self.change: Callable[[Said], Iterable[bytes]] | None = None

    def dialing(
        self, client: Client, place: ServerAddress, *, ports: ClientPorts | None = None
    ) -> AeronClientTransport:
        """A client's side that is listened to."""
        return _Dialing(self, client, place, ports)

    def listening(self, client: Client) -> AeronServerTransport:
        """A server's side that is listened to."""
        return _Listening(self, client)

    def packets(self) -> list[int]:
        """The handshake's packets, in the order in which they were sent."""
        return [one.packet for one in self.said.copy() if one.packet]

    def frames(self, *, to_server: bool) -> list[Said]:
        """The sealed frames of one direction."""
        return [one for one in self.said.copy() if one.counter is not None and one.to_server == to_server]


class _Overheard:
    """A publication as it is, but for ``offer``."""

    def __init__(self, tap: Tap, inner: Publication, *, to_server: bool) -> None:
        self._tap = tap
        self._inner = inner
        self._to_server = to_server
        self._leaving: deque[bytes] | None = None  # instead of a message that was not taken whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def offer(self, *parts: Part, timeout_s: float = 0.0) -> OfferResult | None:
        message = Said(self._to_server, self._inner.session_id, b"".join(parts))
        if self._leaving is None:  # else it is the same message, offered again
            change = self._tap.change
            self._leaving = deque([message.data] if change is None else change(message))
        while self._leaving:
            result = self._inner.offer(self._leaving[0], timeout_s=timeout_s)
            if result is not None:
                return result
            self._tap.said.append(message._replace(data=self._leaving.popleft()))
        self._leaving = None
        return None


class _Dialing(AeronClientTransport):
    def __init__(self, tap: Tap, client: Client, place: ServerAddress, ports: ClientPorts | None) -> None:
        super().__init__(client, place, ports=ports)
        self._tap = tap

    def open_path(self) -> ChannelPair:
        return self._overheard(super().open_path())

    def reopen_path(self, pair: ChannelPair) -> ChannelPair:
        return self._overheard(super().reopen_path(pair))

    def open_link(self, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        return self._overheard(super().open_link(ids, channel_settings))

    def _overheard(self, pair: ChannelPair) -> ChannelPair:
        return ChannelPair(pair.token, cast("Publication", _Overheard(self._tap, pair.publication, to_server=True)))


class _Listening(AeronServerTransport):
    def __init__(self, tap: Tap, client: Client) -> None:
        super().__init__(client)
        self._tap = tap

    def respond(self, image: int) -> Any:
        return _Overheard(self._tap, super().respond(image), to_server=False)

    def open_link(self, image: int, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        pair = super().open_link(image, ids, channel_settings)
        return ChannelPair(pair.token, cast("Publication", _Overheard(self._tap, pair.publication, to_server=False)))

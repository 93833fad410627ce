"""Real transports whose sent messages a test records, and may change before the driver gets them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, cast

from aeron_spark.aeron.client import AeronClient
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

TYPE: Final = 3  # offset of the type in a handshake packet
KEY_HASH: Final = slice(handshake_packets.PREFIX.size, handshake_packets.PREFIX.size + handshake_packets.HASH_BYTES)


class SentMessage(NamedTuple):
    """A message that one end has sent; ``session_id`` is the Aeron session id of its publication."""

    to_server: bool
    session_id: int
    data: bytes

    @property
    def packet(self) -> int:
        """The type of the handshake packet; 0 for another message."""
        return self.data[TYPE] if self.data[:2] == handshake_packets.MAGIC else 0

    @property
    def counter(self) -> int | None:
        """The counter of the encrypted frame that the message is or has; None without a frame."""
        frame = (
            self.data[KEY_HASH.stop :]
            if self.packet in {handshake_packets.DONE_ACK, handshake_packets.FAILED}
            else self.data
        )
        return int(HEADER.unpack_from(frame)[-1]) if frame[0] == ENCRYPTED else None


class Tap:
    """Records sent messages in ``sent``. ``change`` returns the messages to send instead of one."""

    def __init__(self) -> None:
        self.sent: list[SentMessage] = []
        self.change: Callable[[SentMessage], Iterable[bytes]] | None = None

    def client_transport(
        self, client: AeronClient, address: ServerAddress, *, ports: ClientPorts | None = None
    ) -> AeronClientTransport:
        """Return a client's transport with this tap."""
        return _TappedClientTransport(self, client, address, ports)

    def server_transport(self, client: AeronClient) -> AeronServerTransport:
        """Return a server's transport with this tap."""
        return _TappedServerTransport(self, client)

    def packets(self) -> list[int]:
        """Return the types of the handshake packets, in the order of sending."""
        return [one.packet for one in self.sent.copy() if one.packet]

    def frames(self, *, to_server: bool) -> list[SentMessage]:
        """Return the encrypted frames of one direction."""
        return [one for one in self.sent.copy() if one.counter is not None and one.to_server == to_server]


class _TappedPublication:
    """A publication whose ``offer`` records and changes messages."""

    def __init__(self, tap: Tap, inner: Publication, *, to_server: bool) -> None:
        self._tap = tap
        self._inner = inner
        self._to_server = to_server
        self._outgoing: deque[bytes] | None = None  # for a message that was not taken completely

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def offer(self, *parts: Part, timeout_s: float = 0.0) -> OfferResult | None:
        message = SentMessage(self._to_server, self._inner.session_id, b"".join(parts))
        if self._outgoing is None:  # otherwise it is the same message, offered again
            change = self._tap.change
            self._outgoing = deque([message.data] if change is None else change(message))
        while self._outgoing:
            result = self._inner.offer(self._outgoing[0], timeout_s=timeout_s)
            if result is not None:
                return result
            self._tap.sent.append(message._replace(data=self._outgoing.popleft()))
        self._outgoing = None
        return None


class _TappedClientTransport(AeronClientTransport):
    def __init__(self, tap: Tap, client: AeronClient, address: ServerAddress, ports: ClientPorts | None) -> None:
        super().__init__(client, address, ports=ports)
        self._tap = tap

    def open_path(self) -> ChannelPair:
        return self._tapped(super().open_path())

    def reopen_path(self, pair: ChannelPair) -> ChannelPair:
        return self._tapped(super().reopen_path(pair))

    def open_link(self, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        return self._tapped(super().open_link(ids, channel_settings))

    def _tapped(self, pair: ChannelPair) -> ChannelPair:
        return ChannelPair(
            pair.token, cast("Publication", _TappedPublication(self._tap, pair.publication, to_server=True))
        )


class _TappedServerTransport(AeronServerTransport):
    def __init__(self, tap: Tap, client: AeronClient) -> None:
        super().__init__(client)
        self._tap = tap

    def respond(self, image: int) -> Any:
        return _TappedPublication(self._tap, super().respond(image), to_server=False)

    def open_link(self, image: int, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        pair = super().open_link(image, ids, channel_settings)
        return ChannelPair(
            pair.token, cast("Publication", _TappedPublication(self._tap, pair.publication, to_server=False))
        )

"""The data of a server's endpoint: its handshakes, its sessions, their links, and the facts that it emits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from aeron_spark.endpoint.access import Decision
from aeron_spark.endpoint.connection import ConnectionCore
from aeron_spark.endpoint.links import Link, ServerPath
from aeron_spark.endpoint.owner import PeerInfo
from aeron_spark.errors import AeronSparkError
from aeron_spark.options import ServerOptions
from aeron_spark.protocol import server_handshake as actions
from aeron_spark.protocol.grants import Grant
from aeron_spark.protocol.handshake_payloads import DoneAck
from aeron_spark.protocol.ids import (
    FIRST_SESSION_ID,
    LAST_SESSION_ID,
    REUSE_DELAY_S,
    IdAllocator,
    PortAllocator,
    stream_ids,
)
from aeron_spark.protocol.limits import Permit
from aeron_spark.protocol.noise import Entropy
from aeron_spark.protocol.server_handshake import ServerHandshake
from aeron_spark.protocol.sources import Refusal, Source, UdpSource
from aeron_spark.transport.api import ChannelPair, ImageAvailable, LinkIds, ServerAddress

DRIVER_LOST: Final = "driver-lost"  # reason of the error that reports the loss of the media driver


@dataclass(frozen=True, slots=True)
class HandshakeEnded:
    """A handshake has ended. Emitted on the event loop.

    ``result`` is "retry" for a sender that was asked to prove its address, or left before that. ``key`` and ``tag`` are
    those of a client that has proved its key. ``seconds`` is the time since its first packet.
    """

    result: Literal["accepted", "refused", "retry", "lost"]
    source: Source
    refusal: Refusal | None
    key: bytes | None
    tag: str
    seconds: float


@dataclass(frozen=True, slots=True)
class GrantChanged:
    """The grant of a connection's client has changed: everything that it does not cover ends.

    With ``refusal``, the client is not admitted any more, and everything of it ends with this error.
    """

    connection: ConnectionCore
    refusal: AeronSparkError | None = None


@dataclass(frozen=True, slots=True)
class DriverBack:
    """The server has connected to a media driver again, after a loss. Emitted on the event loop."""


@dataclass(slots=True, eq=False)
class ServerSession:
    """One session on the server. ``ticket`` is the last one that its client confirmed, or else the first one.

    While ``link`` is None it is new, or detached: its client may resume it.
    """

    permit: Permit
    ticket: bytes = field(default=b"", repr=False)
    connection: ConnectionCore = field(init=False)  # made when the session was counted
    link: SessionLink | None = None
    detached_at: float | None = None  # when its link was lost, until its listeners are notified of that
    last_notice: Literal["connect", "disconnect"] | None = None  # the last notification of its listeners
    has_ended: bool = False

    @property
    def is_new(self) -> bool:
        """Whether the first frame on its first link is awaited."""
        return self.last_notice is None and not self.has_ended


@dataclass(frozen=True, slots=True)
class Closing:
    """The server closes a session; at ``deadline`` it no longer waits for unsent messages."""

    deadline: float
    keep_session: bool


@dataclass(frozen=True, slots=True)
class AuthenticatedClient:
    """A client that has proved its key, and its grant."""

    key: bytes
    tag: str
    source: Source
    grant: Grant

    @property
    def peer(self) -> PeerInfo:
        """The description of the client for its connection."""
        if isinstance(self.source, UdpSource):
            return PeerInfo(self.key, self.tag, str(self.source.address), self.source.port)
        return PeerInfo(self.key, self.tag, is_ipc=True)


@dataclass(slots=True, eq=False)
class SessionLink:
    """A link of a session with its resources, from the decision on its client until it is closed.

    It opens; then its client must send the first frame by ``deadline``; then it carries the session.
    """

    session: ServerSession
    client: AuthenticatedClient
    ids: LinkIds
    ticket: bytes = field(repr=False)
    permit: Permit | None = None  # for a detached session that has released its own
    is_resumed: bool = False
    pair: ChannelPair | None = None  # both directions; opened after all else
    link: Link | None = None  # the pair with the keys, since DONE_ACK
    deadline: float | None = None


@dataclass(slots=True, eq=False)
class PendingHandshake:
    """The handshake of one image, until Aeron has taken its last packet."""

    image: ImageAvailable
    address: ServerAddress
    source: Source
    handshake: ServerHandshake
    begun_at: float
    permit: Permit | None = None
    path: ServerPath | None = None
    authenticate: actions.Authenticate | None = None  # set when the client has proved its key
    decision: Decision | None = None  # on the client, until the event loop takes it
    link: SessionLink | None = None  # that opens
    drain_until: float | None = None  # set when the handshake has ended

    @property
    def deadline(self) -> float | None:
        """The deadline of the present step."""
        return self.handshake.deadline if self.drain_until is None else self.drain_until

    def ended(self, refusal: Refusal | None, now: float) -> HandshakeEnded:
        """Return the result of the handshake, which has ended."""
        was_refused, was_accepted = refusal is not None, self.handshake.state is actions.State.CONNECTED
        unfinished: Literal["retry", "lost"] = "retry" if self.permit is None else "lost"
        client = self.authenticate
        key, tag = (None, "") if client is None else (client.client_key, client.done.tag)
        return HandshakeEnded(
            "refused" if was_refused else "accepted" if was_accepted else unfinished,
            self.source,
            refusal,
            key,
            tag,
            now - self.begun_at,
        )

    def done_ack(self, link: SessionLink, options: ServerOptions, types: dict[int, bytes]) -> DoneAck:
        """Return DONE_ACK's payload for a link that is open."""
        ids = link.ids
        return DoneAck(
            session_in=ids.session_in,
            stream_in=ids.stream_in,
            session_out=ids.session_out,
            stream_out=ids.stream_out,
            data_port=self.address.data_port,
            control_port=self.address.control_port if ids.mdc_port is None else ids.mdc_port,
            reply_channel=options.reply_channel,
            expiry_ms=int(options.times.expiry_seconds * 1000),
            linger_ms=int(options.times.retention_seconds * 1000),
            ticket=link.ticket,
            resumed=link.is_resumed,
            received=link.session.connection.session.received,
            max_message=options.max_message,
            types=types,
        )


class Pools:
    """The ids of the links and bulk links of one server. For one thread.

    ``mdc_ports`` is the first port and the last one; None: links have no ports.

    An id that was given back is not taken again for ``reuse_delay_s`` seconds.
    """

    def __init__(
        self,
        entropy: Entropy,
        session_ids: tuple[int, int] = (FIRST_SESSION_ID, LAST_SESSION_ID),
        mdc_ports: tuple[int, int] | None = None,
        reuse_delay_s: float = REUSE_DELAY_S,
    ) -> None:
        self._sessions = IdAllocator(*session_ids, entropy, reuse_delay_s=reuse_delay_s)
        self._streams = stream_ids(entropy)
        self._ports = None
        if mdc_ports is not None:
            first, last = mdc_ports
            self._ports = PortAllocator(first, last - first + 1, entropy)

    def take(self, now: float) -> LinkIds | Refusal:
        """Take four ids, and a port if links have ports. Takes nothing if it returns a refusal."""
        sessions: list[int] = []
        streams: list[int] = []
        for taken, allocator in ((sessions, self._sessions), (streams, self._streams)):
            for _ in range(2):
                number = allocator.take(now)
                if isinstance(number, Refusal):
                    self._release(sessions, streams, now)
                    return number
                taken.append(number)
        port = None
        if self._ports is not None:
            ports = self._ports.take(1)
            if isinstance(ports, Refusal):
                self._release(sessions, streams, now)
                return ports
            port = ports[0]
        return LinkIds(sessions[0], streams[0], sessions[1], streams[1], port)

    def release(self, ids: LinkIds, now: float) -> None:
        """Release the ids and the port. Raises UsageError for ids that are not taken."""
        self._release((ids.session_in, ids.session_out), (ids.stream_in, ids.stream_out), now)
        if self._ports is not None and ids.mdc_port is not None:
            self._ports.release((ids.mdc_port,))

    @property
    def in_use(self) -> dict[str, int]:
        """The numbers of taken ids and ports. Thread-safe."""
        return {
            "session_ids": self._sessions.in_use,
            "stream_ids": self._streams.in_use,
            "ports": 0 if self._ports is None else self._ports.in_use,
        }

    def taken(self) -> dict[str, tuple[int, ...]]:
        """Return the taken ids and ports in order. For tests of leaks."""
        return {
            "session_ids": self._sessions.allocated(),
            "stream_ids": self._streams.allocated(),
            "ports": () if self._ports is None else self._ports.allocated(),
        }

    def _release(self, sessions: Sequence[int], streams: Sequence[int], now: float) -> None:
        for number in sessions:
            self._sessions.release(number, now)
        for number in streams:
            self._streams.release(number, now)

"""The data of the server machine: its policy, handshakes and sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal

from aeron_spark.protocol import server_handshake as actions
from aeron_spark.protocol.frame_cipher import KeyLimits
from aeron_spark.protocol.handshake_payloads import DoneAck, ServerHello
from aeron_spark.protocol.ids import FIRST_SESSION_ID, LAST_SESSION_ID, REUSE_DELAY_S
from aeron_spark.protocol.keypair import KeyPair
from aeron_spark.protocol.limits import Limits, Permit
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.noise import Entropy
from aeron_spark.protocol.pools import PooledIds
from aeron_spark.protocol.refusals import Refusal
from aeron_spark.protocol.retry_cookies import Cookies
from aeron_spark.protocol.server_effects import AuthenticatedClient, HandshakeEnded, Notice
from aeron_spark.protocol.server_events import ImageAvailable
from aeron_spark.protocol.server_handshake import ServerHandshake, ServerIdentity, ServerTiming
from aeron_spark.protocol.sources import IpAddress, Source, UdpSource
from aeron_spark.protocol.tickets import MAX_CONNECTIONS_PER_KEY, MAX_SESSIONS

CLOSE_SECONDS: Final = 2.0  # longest wait for unsent messages before a session is closed


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    """Settings of a server machine. Times are in seconds; ``mdc_ports`` is the first port and the number of ports.

    ``address_refusal`` returns the refusal of an address that is banned now, or None.
    """

    limits: Limits = field(default_factory=Limits)
    timing: ServerTiming = field(default_factory=ServerTiming)
    times: Times = field(default_factory=Times)
    key_limits: KeyLimits = field(default_factory=KeyLimits)
    psk: bytes | None = field(default=None, repr=False)
    max_message: int = 128 * 1024
    reply_channel: Literal["response", "mdc"] = "response"
    mdc_ports: tuple[int, int] | None = None
    session_ids: tuple[int, int] = (FIRST_SESSION_ID, LAST_SESSION_ID)
    id_reuse_delay_seconds: float = REUSE_DELAY_S
    max_sessions: int = MAX_SESSIONS
    max_connections_per_key: int = MAX_CONNECTIONS_PER_KEY
    close_seconds: float = CLOSE_SECONDS
    address_refusal: Callable[[IpAddress], Refusal | None] = lambda _: None

    def source_refusal(self, source: Source) -> Refusal | None:
        """Return the refusal of a source whose address is banned now; None if it is not."""
        return self.address_refusal(source.address) if isinstance(source, UdpSource) else None

    def identity(self, keys: KeyPair, entropy: Entropy) -> ServerIdentity:
        """Return the values that all handshakes share."""
        return ServerIdentity(
            keys=keys,
            hello=ServerHello(max_message=self.max_message),
            cookies=Cookies(entropy),
            entropy=entropy,
            psk=self.psk,
            timing=self.timing,
            limits=self.key_limits,
        )


class SessionState(Enum):
    """The state of a session."""

    ACCEPTED = "the client has proved its key; its connection is made, and its first link opened"
    AWAITING_FIRST_FRAME = "DONE_ACK was sent; the first frame of the first link is awaited"
    CONNECTED = "a link carries the session"
    DETACHED = "no link carries the session; the client may resume it"
    ENDED = "the session has ended"


@dataclass(frozen=True, slots=True)
class OpenedLink:
    """A link and its ids."""

    number: int
    ids: PooledIds


@dataclass(frozen=True, slots=True)
class Closing:
    """The server closes a session; at ``deadline`` it no longer waits for unsent messages."""

    deadline: float
    keep_session: bool


@dataclass(slots=True, eq=False)
class ServerSession:
    """One session on the server. ``ticket`` is the last one that its client confirmed, or else the first one."""

    number: int
    permit: Permit
    ticket: bytes = field(repr=False)
    state: SessionState = SessionState.ACCEPTED
    has_connection: bool = False  # the runner has made its connection object
    link: OpenedLink | None = None
    detached_at: float | None = None  # when its link was lost, until its listeners are notified of that
    closing: Closing | None = None
    last_notice: Notice | None = None  # the last notification of its listeners

    @property
    def is_new(self) -> bool:
        """Whether the client's first frame has not arrived yet."""
        return self.state in (SessionState.ACCEPTED, SessionState.AWAITING_FIRST_FRAME)

    def deadline(self, expiry_seconds: float) -> float | None:
        """Return when the server acts on the session without an event; None: never."""
        if self.closing is not None:
            return self.closing.deadline
        return None if self.detached_at is None else self.detached_at + expiry_seconds


@dataclass(frozen=True, slots=True)
class AcceptedHandshake:
    """A link for a client that has proved its key, before DONE_ACK is sent."""

    session: ServerSession
    client: AuthenticatedClient
    link: OpenedLink
    ticket: bytes = field(repr=False)
    permit: Permit | None  # for a detached session that has released its own
    is_resumed: bool


@dataclass(frozen=True, slots=True)
class AwaitingFirstFrame:
    """A link on which the client must send its first frame by ``deadline``."""

    accepted: AcceptedHandshake
    deadline: float


@dataclass(slots=True, eq=False)
class PendingHandshake:
    """The handshake of one image, until Aeron has taken its last packet."""

    path: int
    event: ImageAvailable
    source: Source
    handshake: ServerHandshake
    begun_at: float
    permit: Permit | None = None
    is_open: bool = False  # OpenPath was returned, but not ClosePath
    authenticate: actions.Authenticate | None = None  # set when the client has proved its key
    accepted: AcceptedHandshake | None = None
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
            self.source, refusal, key, tag, now - self.begun_at,
        )  # fmt: skip


def build_done_ack(
    pending: PendingHandshake, accepted: AcceptedHandshake, policy: ServerPolicy, types: dict[int, bytes], received: int
) -> DoneAck:
    """Return DONE_ACK's payload for an accepted handshake."""
    ids = accepted.link.ids
    return DoneAck(
        session_in=ids.session_in,
        stream_in=ids.stream_in,
        session_out=ids.session_out,
        stream_out=ids.stream_out,
        data_port=pending.event.data_port,
        control_port=pending.event.control_port if ids.mdc_port is None else ids.mdc_port,
        reply_channel=policy.reply_channel,
        expiry_ms=int(policy.times.expiry_seconds * 1000),
        linger_ms=int(policy.times.retention_seconds * 1000),
        ticket=accepted.ticket,
        resumed=accepted.is_resumed,
        received=received,
        max_message=policy.max_message,
        types=types,
    )

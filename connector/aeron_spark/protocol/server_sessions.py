"""What a server's machine keeps: its policy, the handshakes under way, and the sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal

from aeron_spark.protocol import server_handshake as actions
from aeron_spark.protocol.access import Source
from aeron_spark.protocol.frame_cipher import KeyLimits
from aeron_spark.protocol.handshake_payloads import DoneAck, ServerHello
from aeron_spark.protocol.ids import FIRST_SESSION_ID, LAST_SESSION_ID, REUSE_DELAY_S
from aeron_spark.protocol.keypair import KeyPair
from aeron_spark.protocol.limits import Limits, Permit
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.noise import Entropy
from aeron_spark.protocol.pools import PooledIds
from aeron_spark.protocol.retry_cookies import Cookies
from aeron_spark.protocol.server_effects import AuthenticatedClient, Notice
from aeron_spark.protocol.server_events import ImageAvailable
from aeron_spark.protocol.server_handshake import ServerHandshake, ServerIdentity, ServerTiming
from aeron_spark.protocol.tickets import MAX_SESSIONS, MAX_SESSIONS_PER_KEY

CLOSE_SECONDS: Final = 2.0  # for what was sent to go out before a session ends


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    """How a server decides. Times are in seconds; ``mdc_ports`` is the first port and the number of ports."""

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
    max_sessions_per_key: int = MAX_SESSIONS_PER_KEY
    close_seconds: float = CLOSE_SECONDS

    def identity(self, keys: KeyPair, entropy: Entropy, now: float) -> ServerIdentity:
        """Return what all handshakes have in common; its cookies are secrets of ``entropy`` from ``now`` on."""
        return ServerIdentity(
            keys=keys,
            hello=ServerHello(max_message=self.max_message),
            cookies=Cookies(entropy, now),
            entropy=entropy,
            psk=self.psk,
            timing=self.timing,
            limits=self.key_limits,
        )


class SessionState(Enum):
    """Where a session is."""

    ACCEPTED = "the client proved its key; its connection is made, its first link opened"
    AWAITING_FIRST_FRAME = "DONE_ACK was sent; the first frame of the first link is awaited"
    CONNECTED = "a link carries it"
    AWAY = "no link carries it; the client may resume it"
    ENDED = "it is over"


@dataclass(frozen=True, slots=True)
class OpenedLink:
    """A link and the ids it has."""

    number: int
    ids: PooledIds


@dataclass(frozen=True, slots=True)
class Closing:
    """The server closes a session; it waits until ``due`` for what was sent to go out."""

    due: float
    keep_session: bool


@dataclass(slots=True, eq=False)
class ServerSession:
    """What a server knows of one session. ``ticket`` is the one that its client used last, or was given first."""

    number: int
    permit: Permit
    ticket: bytes = field(repr=False)
    state: SessionState = SessionState.ACCEPTED
    is_made: bool = False  # it has a connection object
    link: OpenedLink | None = None
    away_since: float | None = None  # since when no link carries it, until its listeners were notified
    closing: Closing | None = None
    notified: Notice | None = None  # what its listeners heard last

    @property
    def is_new(self) -> bool:
        """Whether no first frame of its client came so far."""
        return self.state in (SessionState.ACCEPTED, SessionState.AWAITING_FIRST_FRAME)

    def check(self, attempts: int) -> None:
        """Raise AssertionError unless the state fits what the session, and as many attempts to reach it, own."""
        match self.state:
            case SessionState.ACCEPTED | SessionState.AWAITING_FIRST_FRAME:
                assert self.link is None
                assert self.permit.is_taken
                assert attempts == 1
                assert self.notified is None
            case SessionState.CONNECTED:
                assert self.link is not None
                assert self.permit.is_taken
                assert self.away_since is None
            case SessionState.AWAY:
                assert self.link is None
                assert self.closing is None
                assert self.permit.is_taken == (self.away_since is not None)
            case SessionState.ENDED:
                raise AssertionError(f"session {self.number} is over, and still known")


@dataclass(frozen=True, slots=True)
class AcceptedHandshake:
    """A link for a client that proved its key; DONE_ACK is to follow."""

    session: ServerSession
    client: AuthenticatedClient
    link: OpenedLink
    ticket: bytes = field(repr=False)
    permit: Permit | None  # of a session that had given its own back while it was away
    is_resumed: bool


@dataclass(frozen=True, slots=True)
class AwaitingFirstFrame:
    """A link on which the client has to send its first frame until ``deadline``."""

    accepted: AcceptedHandshake
    deadline: float


@dataclass(slots=True, eq=False)
class PendingHandshake:
    """The handshake of one image, until its last packet went out."""

    path: int
    event: ImageAvailable
    source: Source
    handshake: ServerHandshake
    permit: Permit | None = None
    is_open: bool = False  # OpenPath was returned, and no ClosePath yet
    asked: actions.Authenticate | None = None
    accepted: AcceptedHandshake | None = None
    drain_until: float | None = None  # the handshake is over

    @property
    def deadline(self) -> float | None:
        """When its time is over."""
        return self.handshake.deadline if self.drain_until is None else self.drain_until


def done_ack(
    pending: PendingHandshake, accepted: AcceptedHandshake, policy: ServerPolicy, types: dict[int, bytes], received: int
) -> DoneAck:
    """Return what the client of an accepted handshake is told: where its link is, and what becomes of its session."""
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

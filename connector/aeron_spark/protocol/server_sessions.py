"""The data of the server machine: its handshakes, its sessions, and its limited resources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, Protocol

from aeron_spark.protocol import server_handshake as actions
from aeron_spark.protocol.frame_cipher import CipherLimits
from aeron_spark.protocol.handshake_payloads import DoneAck
from aeron_spark.protocol.ids import PooledIds, Pools
from aeron_spark.protocol.limits import Admission, Limits, Permit
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.noise import Entropy
from aeron_spark.protocol.server_effects import AuthenticatedClient, HandshakeEnded, Notice
from aeron_spark.protocol.server_events import ImageAvailable
from aeron_spark.protocol.server_handshake import ServerHandshake, ServerTiming
from aeron_spark.protocol.sources import Refusal, Source
from aeron_spark.protocol.tickets import TicketStore


class ServerMachineOptions(Protocol):
    """The options of a server that its machine reads. They are declared above this package. Times are in seconds."""

    @property
    def admission(self) -> Limits: ...

    @property
    def timing(self) -> ServerTiming: ...

    @property
    def times(self) -> Times: ...

    @property
    def key_limits(self) -> CipherLimits: ...

    @property
    def max_message(self) -> int: ...

    @property
    def reply_channel(self) -> Literal["response", "mdc"]: ...

    @property
    def mdc_ports(self) -> tuple[int, int] | None: ...

    @property
    def session_id_range(self) -> tuple[int, int]: ...

    @property
    def id_reuse_delay(self) -> float: ...

    @property
    def max_sessions(self) -> int: ...

    @property
    def max_connections_per_key(self) -> int: ...

    @property
    def close_timeout(self) -> float: ...


class SessionState(Enum):
    """The state of a server's session; the value says what the server has or waits for in it."""

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
    pending: PendingHandshake,
    accepted: AcceptedHandshake,
    options: ServerMachineOptions,
    types: dict[int, bytes],
    received: int,
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
        reply_channel=options.reply_channel,
        expiry_ms=int(options.times.expiry_seconds * 1000),
        linger_ms=int(options.times.retention_seconds * 1000),
        ticket=accepted.ticket,
        resumed=accepted.is_resumed,
        received=received,
        max_message=options.max_message,
        types=types,
    )


class ServerResources:
    """Resources of one server. For one thread, except ``statistics``."""

    def __init__(self, options: Callable[[], ServerMachineOptions], entropy: Entropy) -> None:
        at_start = options()
        self.admission: Final = Admission(lambda: options().admission)
        self.pools: Final = Pools(entropy, at_start.session_id_range, at_start.mdc_ports, at_start.id_reuse_delay)
        self.tickets: Final[TicketStore[ServerSession]] = TicketStore(
            entropy,
            at_start.times.retention_seconds,
            max_sessions=lambda: options().max_sessions,
            max_connections_per_key=lambda: options().max_connections_per_key,
            confirm_seconds=at_start.timing.authenticating_s + at_start.times.setup_seconds,
        )
        self.refused: Final[Counter[str]] = Counter()
        self._bulk: Final[set[PooledIds]] = set()

    def take_bulk_ids(self, now: float) -> PooledIds | Refusal:
        """Take the ids of a bulk link. The caller must release them when it closes the link."""
        ids = self.pools.take(now)
        if not isinstance(ids, Refusal):
            self._bulk.add(ids)
        return ids

    def release_bulk_ids(self, ids: PooledIds, now: float) -> None:
        """Release the ids of a bulk link. Raises KeyError for ids that are not taken."""
        self._bulk.remove(ids)
        self.pools.release(ids, now)

    def statistics(self) -> dict[str, int]:
        """Return counts of used resources, and of refusals by code. Thread-safe."""
        return {
            "admitted": self.admission.connections,
            "pending": self.admission.pending,
            "addresses": self.admission.addresses,
            **self.pools.in_use,
            **{f"refused-{code}": number for code, number in dict(self.refused).items()},
        }

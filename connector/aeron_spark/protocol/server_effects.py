"""The effects of the server machine, which the runner executes. ``server_events`` explains the numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from aeron_spark.errors import AeronSparkError, SessionLost, TransportError
from aeron_spark.protocol.connection_machine import closed_error
from aeron_spark.protocol.frame_cipher import FrameDecryptor, FrameEncryptor
from aeron_spark.protocol.grants import Grant
from aeron_spark.protocol.handshake_payloads import ClientDone
from aeron_spark.protocol.ids import PooledIds
from aeron_spark.protocol.sources import Refusal, Source

Notice = Literal["connect", "resume", "disconnect"]
"""A notification of the listeners. Before the first "connect", the runner also notifies the "init" listeners."""


@dataclass(frozen=True, slots=True)
class AuthenticatedClient:
    """A client that has proved its key, and its grant."""

    key: bytes
    tag: str
    source: Source
    grant: Grant


class Ending(Enum):
    """Why a session ended, if no error is the cause."""

    CLOSED_BY_SERVER = "the server closed the connection"
    CLOSED_BY_CLIENT = "the client closed the connection"
    NOT_RESUMED = "the client did not resume the session in time"
    NEVER_CONNECTED = "the client did not send the first frame of its first link"

    def error_of(self, label: str) -> AeronSparkError:
        """Return the error of the connection with this label, whose session has ended so."""
        match self:
            case Ending.CLOSED_BY_CLIENT:
                return TransportError("the peer closed the connection", remedy="Wait until the client connects again.")
            case Ending.NOT_RESUMED:
                return SessionLost(f"{label} was not resumed in time", remedy="Connect again.")
            case _:
                return closed_error()


@dataclass(frozen=True, slots=True)
class RejectImage:
    """Reject an image. Only its sender receives the reason."""

    image: int
    reason: str


@dataclass(frozen=True, slots=True)
class OpenPath:
    """Open a response publication to the sender of an image. Result: PathReady or PathFailed."""

    path: int
    image: int


@dataclass(frozen=True, slots=True)
class Transmit:
    """Offer a packet on a path's response publication until Aeron takes it."""

    path: int
    packet: bytes


@dataclass(frozen=True, slots=True)
class DrainPath:
    """Send what is unsent; no packets follow. Result: PathDrained."""

    path: int


@dataclass(frozen=True, slots=True)
class ClosePath:
    """Close a path's response publication. The machine returns it once for each OpenPath."""

    path: int


@dataclass(frozen=True, slots=True)
class Decide:
    """Let key store and filters decide on a client, on another thread. Result: Decided."""

    path: int
    source: Source
    key: bytes
    done: ClientDone


@dataclass(frozen=True, slots=True)
class MakeConnection:
    """Make the connection object of a new session. Result: ConnectionMade or ConnectionFailed.

    Both endpoints show ``number`` to their programs. The machine sends DONE_ACK after the result.
    """

    session: int
    number: int
    client: AuthenticatedClient


@dataclass(frozen=True, slots=True)
class OpenLink:
    """Open both directions of a link with the sender of an image.

    Result: LinkReady or LinkFailed, or ImageUnavailable if the sender has left.
    """

    link: int
    session: int
    image: int
    ids: PooledIds


@dataclass(frozen=True, slots=True)
class ExpectFirstFrame:
    """Decrypt the frames of a link after DONE_ACK. Result: LinkVerified or LinkFailed, at the first frame."""

    link: int
    session: int
    client: AuthenticatedClient
    encryptor: FrameEncryptor = field(repr=False)
    decryptor: FrameDecryptor = field(repr=False)


@dataclass(frozen=True, slots=True)
class Attach:
    """Let a link carry a session. Result: LinkAttached or SessionFailed."""

    link: int
    session: int
    client: AuthenticatedClient
    received: int


@dataclass(frozen=True, slots=True)
class Detach:
    """Take a session off its link."""

    session: int


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Close both directions of a link. The machine returns it once for each OpenLink."""

    link: int


@dataclass(frozen=True, slots=True)
class DrainSession:
    """Send the unsent messages of a session. Result: SessionDrained."""

    session: int


@dataclass(frozen=True, slots=True)
class EndConnection:
    """End a connection object permanently: its calls and waits fail."""

    session: int
    cause: Ending | AeronSparkError


@dataclass(frozen=True, slots=True)
class Notify:
    """Call the listeners of a connection, after those of earlier messages and notices."""

    session: int
    notice: Notice


@dataclass(frozen=True, slots=True)
class ForgetConnection:
    """Drop the connection object. No later effect names this session."""

    session: int


@dataclass(frozen=True, slots=True)
class HandshakeEnded:
    """Report the result of a handshake, for logs and metrics.

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
class Report:
    """Report an error to the error listeners."""

    error: Exception


@dataclass(frozen=True, slots=True)
class ReopenTransport:
    """Connect to a media driver again, and open the server's subscriptions."""


ServerEffect = (
    RejectImage
    | OpenPath
    | Transmit
    | DrainPath
    | ClosePath
    | Decide
    | MakeConnection
    | OpenLink
    | ExpectFirstFrame
    | Attach
    | Detach
    | CloseLink
    | DrainSession
    | EndConnection
    | Notify
    | ForgetConnection
    | HandshakeEnded
    | Report
    | ReopenTransport
)
ServerEffects = tuple[ServerEffect, ...]

"""The words of a client's machine: its states, the events that it takes and the effects that a runner executes.

Events and effects name what they are about by numbers, which the machine allots and never gives twice: a *path* is the
subscription of one handshake, a *publication* one of the publications on it, a *link* carries a session, a *session* is
a connection of the program. An event about a number that the machine has closed must not be handed to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from aeron_spark.errors import AeronSparkError
from aeron_spark.protocol.frame_cipher import FrameDecryptor, FrameEncryptor
from aeron_spark.protocol.handshake_payloads import DoneAck


class ClientState(Enum):
    """What a client does now."""

    IDLE = "it is not connected and does not try to be"
    LOOKING_UP = "the key store was asked for the server's key"
    HANDSHAKING = "a handshake is under way"
    OPENING_LINK = "the server has accepted; its first frame is awaited"
    CONNECTED = "a link carries the session"
    PAUSED = "the next attempt begins after a pause"
    WITHOUT_DRIVER = "the media driver is gone; the transport is opened again"
    CLOSING = "the connection is being closed; what was sent goes out"
    CLOSED = "the client has ended"


@dataclass(slots=True)
class SessionRecord:
    """What a client knows of a session over its links. ``session`` is this machine's number of it.

    ``number`` is the one by which both ends call it. ``confirmed``: a link has carried it. ``away_since``: when its
    link was lost, while the program is not told of that. ``gone_reported``: the program was told that it is gone, or
    was never told of it.
    """

    session: int
    number: int
    confirmed: bool = False
    away_since: float | None = None
    gone_reported: bool = True


# Events: what the program wants.


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect until the time ``until``, or without an end. ``reconnecting``: stop trying then, with a session, too."""

    until: float | None
    reconnecting: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection; CLOSE is on its way to the server."""

    keep_session: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop trying to connect because of ``error``."""

    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class ShutDown:
    """End for good: nothing is waited for any more."""


# Events: time.


@dataclass(frozen=True, slots=True)
class StepDue:
    """The deadline of the state has come."""


@dataclass(frozen=True, slots=True)
class ConnectDue:
    """The time for a connect is over."""


# Events: what the runner has done.


@dataclass(frozen=True, slots=True)
class KeyKnown:
    """The key store has answered: the server's ``key``, or None.

    ``received`` and ``types`` are for DONE: how many records of the session have come, digests of the message types.
    """

    key: bytes | None
    received: int
    types: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class LookUpFailed:
    """The key store has failed."""

    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class ConnectionMade:
    """The connection of a session is there."""

    session: int


@dataclass(frozen=True, slots=True)
class ConnectionFailed:
    """The program's own class of connections has failed."""

    session: int
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class Attached:
    """The link carries the session now."""

    session: int


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """The session is over: the ends do not fit each other, it was away for too long, or frames are tampered with."""

    session: int
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class Drained:
    """Aeron has taken everything that a closing link had to send."""

    link: int


@dataclass(frozen=True, slots=True)
class TransportReopened:
    """The transport was opened again."""


@dataclass(frozen=True, slots=True)
class ReopenFailed:
    """The transport could not be opened again."""

    error: AeronSparkError


# Events: what the transport says.


@dataclass(frozen=True, slots=True)
class PathReady:
    """The server hears the publication."""

    path: int
    publication: int


@dataclass(frozen=True, slots=True)
class PathFailed:
    """The path could not be opened, and is closed already."""

    path: int
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class PathLost:
    """The server's image on the path is gone."""

    path: int


@dataclass(frozen=True, slots=True)
class PublicationFailed:
    """A publication of the path could not be opened."""

    path: int
    publication: int
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class PublicationRejected:
    """The server's driver rejected a publication of the path; ``reason`` is a hint that nothing authenticates."""

    path: int
    publication: int
    reason: str


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet arrived on the path. ``data`` is good until the event was handled."""

    path: int
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class LinkVerified:
    """The server's first frame was decrypted; the server has ``received`` records of the session."""

    link: int
    received: int


@dataclass(frozen=True, slots=True)
class LinkFailed:
    """The link could not be opened, or is lost. ``silent``: it was silent for longer than the expiry."""

    link: int
    error: AeronSparkError
    silent: bool = False


@dataclass(frozen=True, slots=True)
class PeerClosed:
    """The server has closed the connection."""

    link: int
    keep_session: bool


@dataclass(frozen=True, slots=True)
class DriverLost:
    """The media driver is gone, and everything that was opened with it."""

    error: AeronSparkError


ClientEvent = (
    Connect | Close | Stop | ShutDown | StepDue | ConnectDue
    | KeyKnown | LookUpFailed | ConnectionMade | ConnectionFailed | Attached | SessionFailed | Drained
    | TransportReopened | ReopenFailed
    | PathReady | PathFailed | PathLost | PublicationFailed | PublicationRejected | Packet
    | LinkVerified | LinkFailed | PeerClosed | DriverLost
)  # fmt: skip


# Effects. An effect that is answered by an event is the last one of its step.


@dataclass(frozen=True, slots=True)
class LookUpKey:
    """Ask the key store for the server's key. Answer: KeyKnown or LookUpFailed, at any later time."""


@dataclass(frozen=True, slots=True)
class RememberKey:
    """Have the key store remember the server by ``key``."""

    session: int
    key: bytes


@dataclass(frozen=True, slots=True)
class OpenPath:
    """Open a path with its first publication. PathReady follows, or PathFailed, or PublicationFailed."""

    path: int
    publication: int


@dataclass(frozen=True, slots=True)
class OpenPublication:
    """Open a further publication on the path."""

    path: int
    publication: int


@dataclass(frozen=True, slots=True)
class ClosePublication:
    """Close one publication of the path, with what waits to be sent on it."""

    path: int
    publication: int


@dataclass(frozen=True, slots=True)
class ClosePath:
    """Close the path with all its publications."""

    path: int


@dataclass(frozen=True, slots=True)
class Transmit:
    """Offer the packet, once the publication is connected, until it is taken."""

    path: int
    publication: int
    packet: bytes


@dataclass(frozen=True, slots=True)
class MakeConnection:
    """Make the connection of a new session. Answer: ConnectionMade or ConnectionFailed, at once."""

    session: int
    number: int
    server_key: bytes
    key_changed: bool


@dataclass(frozen=True, slots=True)
class ForgetConnection:
    """The connection of this session is of no use any more."""

    session: int


@dataclass(frozen=True, slots=True)
class OpenLink:
    """Open a link for the session with the ids in ``ack``, and send OPEN on it. LinkVerified follows, or LinkFailed."""

    link: int
    session: int
    ack: DoneAck
    encryptor: FrameEncryptor
    decryptor: FrameDecryptor


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Close a link; nothing is left to close of one that could not be opened."""

    link: int


@dataclass(frozen=True, slots=True)
class Attach:
    """Let the link carry the session. Answer: Attached or SessionFailed, at once."""

    session: int
    link: int
    received: int


@dataclass(frozen=True, slots=True)
class Detach:
    """No link carries the session any more."""

    session: int


@dataclass(frozen=True, slots=True)
class RefuseSending:
    """Have the connection raise ``error`` to its senders; None: take what they send."""

    session: int
    error: AeronSparkError | None


@dataclass(frozen=True, slots=True)
class EndConnection:
    """The connection is over for good; its callers get ``error``."""

    session: int
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class Notify:
    """Call the program's listeners, after what was delivered before."""

    session: int
    about: Literal["init", "connect", "resume", "disconnect"]


@dataclass(frozen=True, slots=True)
class Report:
    """Call the program's listeners for errors."""

    session: int
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class Resolve:
    """Give the outcome to the threads that wait for a connect: the session that is connected, or why there is none."""

    outcome: int | AeronSparkError


@dataclass(frozen=True, slots=True)
class ReopenTransport:
    """Open the transport on a new media driver. Answer: TransportReopened or ReopenFailed, at any later time."""


ClientEffect = (
    LookUpKey | RememberKey | OpenPath | OpenPublication | ClosePublication | ClosePath | Transmit
    | MakeConnection | ForgetConnection | OpenLink | CloseLink | Attach | Detach | RefuseSending | EndConnection
    | Notify | Report | Resolve | ReopenTransport
)  # fmt: skip
Effects = tuple[ClientEffect, ...]

"""The client machine's states, its events, and the effects that the runner executes.

The machine numbers its objects, and uses each number once: a *path* is the subscription of one handshake, a
*publication* belongs to a path, a *link* carries a session, and a *session* is a connection of the program. The runner
must not pass an event about a path, publication or link that the machine has closed.
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
    """The state of a client's machine; the value says what the client does in it."""

    IDLE = "not connected, and not trying to connect"
    LOOKING_UP = "the key store looks up the server's key"
    HANDSHAKING = "a handshake is under way"
    OPENING_LINK = "the server has accepted; the client awaits its first frame"
    CONNECTED = "a link carries the session"
    PAUSED = "the next attempt begins after a pause"
    WITHOUT_DRIVER = "the media driver was lost; the runner opens the transport again"
    CLOSING = "the connection is being closed; unsent messages are being sent"
    CLOSED = "the client has ended"


@dataclass(slots=True)
class SessionRecord:
    """A session as the client knows it, over all its links."""

    session: int  # the machine's number of it
    number: int  # the number that both endpoints show to their programs
    is_confirmed: bool = False  # a link has carried it
    is_reported_connected: bool = False  # the last notification was "connect" or "resume"
    detached_at: float | None = None  # when its link was lost, until the program is notified of that


@dataclass(slots=True)
class PendingConnect:
    """A connect of the program without an outcome. ``stops_at_deadline``: make no attempt after the deadline."""

    deadline: float | None
    started_at: float
    stops_at_deadline: bool


# Events: requests of the program.


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect by the time ``until``, or without a deadline.

    ``reconnecting``: at the deadline, stop the attempts even if the client has a session to resume.
    """

    until: float | None
    reconnecting: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection. The runner has queued CLOSE already."""

    keep_session: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the attempts to connect because of ``error``."""

    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class ShutDown:
    """End the client at once. It cannot be used again."""


# Events: time.


@dataclass(frozen=True, slots=True)
class StepDue:
    """The deadline of the present state has passed."""


@dataclass(frozen=True, slots=True)
class ConnectDue:
    """The deadline of the program's connect has passed."""


# Events: results of effects.


@dataclass(frozen=True, slots=True)
class KeyKnown:
    """The key store has found the server's ``key``, or has none (None).

    ``received`` and ``types`` are for DONE: the number of records received in the session, and the digests of the
    message types.
    """

    key: bytes | None
    received: int
    types: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class LookUpFailed:
    """The key store could not look the key up."""

    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class ConnectionMade:
    """The runner has made the connection of a session."""

    session: int


@dataclass(frozen=True, slots=True)
class ConnectionFailed:
    """The program's connection class raised ``error``."""

    session: int
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class Attached:
    """The link carries the session from now on."""

    session: int


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """The session cannot continue: the endpoints disagree on it, an outage was too long, or frames were altered."""

    session: int
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class Drained:
    """Aeron has taken all messages of a link that is being closed."""

    link: int


@dataclass(frozen=True, slots=True)
class TransportOpened:
    """The runner has opened the transport on a media driver."""


@dataclass(frozen=True, slots=True)
class OpenFailed:
    """The runner could not open the transport."""

    error: AeronSparkError


# Events of the transport.


@dataclass(frozen=True, slots=True)
class PathReady:
    """The first publication of the path is connected to the server.

    ``expects_retry``: the server answers the first HELLO with a cookie, as servers do over the network, so the machine
    opens the next publication in advance.
    """

    path: int
    publication: int
    expects_retry: bool


@dataclass(frozen=True, slots=True)
class PathFailed:
    """The runner could not open the path, and has closed it."""

    path: int
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class PathLost:
    """The server's image on the path became unavailable."""

    path: int


@dataclass(frozen=True, slots=True)
class PublicationFailed:
    """A publication of the path could not be opened."""

    path: int
    publication: int
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class PublicationRejected:
    """The server rejected a publication of the path. ``reason`` is a hint, which is not authenticated."""

    path: int
    publication: int
    reason: str


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet arrived on the path. ``data`` is valid until the machine has handled the event."""

    path: int
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class LinkVerified:
    """The server's first frame was decrypted. The server has received ``received`` records of the session."""

    link: int
    received: int


@dataclass(frozen=True, slots=True)
class LinkFailed:
    """The link could not be opened, or was lost. ``silent``: no frame arrived for longer than the expiry."""

    link: int
    error: AeronSparkError
    silent: bool = False


@dataclass(frozen=True, slots=True)
class PeerClosed:
    """The server sent CLOSE; ``error`` is its reason, or None."""

    link: int
    keep_session: bool
    error: AeronSparkError | None = None


@dataclass(frozen=True, slots=True)
class DriverLost:
    """The media driver was lost, with all paths and links."""

    error: AeronSparkError


ClientEvent = (
    Connect | Close | Stop | ShutDown | StepDue | ConnectDue
    | KeyKnown | LookUpFailed | ConnectionMade | ConnectionFailed | Attached | SessionFailed | Drained
    | TransportOpened | OpenFailed
    | PathReady | PathFailed | PathLost | PublicationFailed | PublicationRejected | Packet
    | LinkVerified | LinkFailed | PeerClosed | DriverLost
)  # fmt: skip


# Effects. An effect with a result "at once" is the last one of its step.


@dataclass(frozen=True, slots=True)
class LookUpKey:
    """Look up the server's key in the key store. Result: KeyKnown or LookUpFailed, at any later time."""


@dataclass(frozen=True, slots=True)
class RememberKey:
    """Store ``key`` as the server's key in the key store."""

    session: int
    key: bytes


@dataclass(frozen=True, slots=True)
class OpenPath:
    """Open a path with its first publication. Result: PathReady, PathFailed or PublicationFailed."""

    path: int
    publication: int


@dataclass(frozen=True, slots=True)
class OpenPublication:
    """Open another publication on the path."""

    path: int
    publication: int


@dataclass(frozen=True, slots=True)
class ClosePublication:
    """Close one publication of the path, and drop its unsent packets."""

    path: int
    publication: int


@dataclass(frozen=True, slots=True)
class ClosePath:
    """Close the path with all its publications."""

    path: int


@dataclass(frozen=True, slots=True)
class Transmit:
    """Offer the packet until Aeron takes it. The publication may not be connected yet."""

    path: int
    publication: int
    packet: bytes


@dataclass(frozen=True, slots=True)
class MakeConnection:
    """Make the connection of a new session. Result: ConnectionMade or ConnectionFailed, at once."""

    session: int
    number: int
    server_key: bytes
    key_changed: bool


@dataclass(frozen=True, slots=True)
class ForgetConnection:
    """Drop the connection of this session. No later effect names it."""

    session: int


@dataclass(frozen=True, slots=True)
class OpenLink:
    """Open a link for the session with the ids in ``ack``, and send OPEN on it. Result: LinkVerified or LinkFailed."""

    link: int
    session: int
    ack: DoneAck
    encryptor: FrameEncryptor
    decryptor: FrameDecryptor


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Close a link, which may have failed to open."""

    link: int


@dataclass(frozen=True, slots=True)
class Attach:
    """Let the link carry the session. Result: Attached or SessionFailed, at once."""

    session: int
    link: int
    received: int


@dataclass(frozen=True, slots=True)
class Detach:
    """Take the session off its link."""

    session: int


@dataclass(frozen=True, slots=True)
class RefuseSending:
    """Let calls that send on the connection raise ``error``; None: let them send again."""

    session: int
    error: AeronSparkError | None


@dataclass(frozen=True, slots=True)
class EndConnection:
    """End the connection permanently: its calls and waits fail with ``error``.

    Tell the program which messages the server has not confirmed.
    """

    session: int
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class Notify:
    """Call the program's listeners, after all earlier messages were delivered to them."""

    session: int
    about: Literal["init", "connect", "resume", "disconnect"]


@dataclass(frozen=True, slots=True)
class NotifyReconnect:
    """Tell the program that the client is connected again: with the same session (``resumed``), or with a new one."""

    session: int
    resumed: bool


@dataclass(frozen=True, slots=True)
class NotifyStopped:
    """Tell the program that the client has stopped its attempts because of ``error``."""

    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class Report:
    """Call the program's error listeners."""

    session: int
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class Resolve:
    """End the program's connect: with the session that is connected, or with an error."""

    outcome: int | AeronSparkError


@dataclass(frozen=True, slots=True)
class OpenTransport:
    """Open the transport; after a loss, on a new media driver. Result: TransportOpened or OpenFailed, later."""


@dataclass(frozen=True, slots=True)
class ReportUnused:
    """Tell the program that the client has lost its link without use, and has stopped."""


ClientEffect = (
    LookUpKey | RememberKey | OpenPath | OpenPublication | ClosePublication | ClosePath | Transmit
    | MakeConnection | ForgetConnection | OpenLink | CloseLink | Attach | Detach | RefuseSending | EndConnection
    | Notify | NotifyReconnect | NotifyStopped | Report | Resolve | OpenTransport | ReportUnused
)  # fmt: skip
Effects = tuple[ClientEffect, ...]

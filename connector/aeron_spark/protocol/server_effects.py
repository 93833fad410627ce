"""What a server's runner is to do, as its machine returns it. Numbers are those of ``server_events``."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from aeron_spark.errors import AeronSparkError
from aeron_spark.protocol.access import Grant, Source
from aeron_spark.protocol.frame_cipher import FrameDecryptor, FrameEncryptor
from aeron_spark.protocol.handshake_payloads import ClientDone
from aeron_spark.protocol.pools import PooledIds

Notice = Literal["connect", "resume", "disconnect"]
"""What listeners hear of a connection; of the first link, those of "init" hear before those of "connect"."""


@dataclass(frozen=True, slots=True)
class AuthenticatedClient:
    """A client that proved its key, and what it may do."""

    key: bytes
    tag: str
    source: Source
    grant: Grant | None


class Ending(Enum):
    """Why a session is over, where no error says it."""

    CLOSED_BY_SERVER = "the server closed the connection"
    CLOSED_BY_CLIENT = "the client closed the connection"
    NOT_RESUMED = "the client did not resume the session in time"
    NEVER_CONNECTED = "the client did not send the first frame of its first link"


@dataclass(frozen=True, slots=True)
class RejectImage:
    """Reject an image; the reason reaches its sender alone."""

    image: int
    reason: str


@dataclass(frozen=True, slots=True)
class OpenPath:
    """Open a response publication to the sender of an image. Answer: PathReady or PathFailed."""

    path: int
    image: int


@dataclass(frozen=True, slots=True)
class Transmit:
    """Offer a packet on a path's response publication until it is taken."""

    path: int
    packet: bytes


@dataclass(frozen=True, slots=True)
class DrainPath:
    """No more packets follow. Answer: PathDrained."""

    path: int


@dataclass(frozen=True, slots=True)
class ClosePath:
    """Close a path's response publication. Follows each OpenPath, once."""

    path: int


@dataclass(frozen=True, slots=True)
class Decide:
    """Ask key store and filters, off the loop thread, whether a client may come in. Answer: Decided."""

    path: int
    source: Source
    key: bytes
    done: ClientDone


@dataclass(frozen=True, slots=True)
class MakeConnection:
    """Make a session's connection object, called ``number`` at both ends. Answer: ConnectionMade or ConnectionFailed.

    Follows each new session, once; DONE_ACK is sent after the answer.
    """

    session: int
    number: int
    client: AuthenticatedClient


@dataclass(frozen=True, slots=True)
class OpenLink:
    """Open both directions of a link with the sender of an image.

    Answer: LinkReady or LinkFailed; ImageUnavailable where the sender is gone.
    """

    link: int
    session: int
    image: int
    ids: PooledIds


@dataclass(frozen=True, slots=True)
class ExpectFirstFrame:
    """DONE_ACK was sent: decrypt what comes on a link. Answer: LinkVerified or LinkFailed, by its first frame."""

    link: int
    session: int
    client: AuthenticatedClient
    encryptor: FrameEncryptor = field(repr=False)
    decryptor: FrameDecryptor = field(repr=False)


@dataclass(frozen=True, slots=True)
class Attach:
    """Let a link carry a session. Answer: LinkAttached or SessionFailed."""

    link: int
    session: int
    client: AuthenticatedClient
    received: int


@dataclass(frozen=True, slots=True)
class Detach:
    """The session's link does not carry it any more."""

    session: int


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Close both directions of a link. Follows each OpenLink, once."""

    link: int


@dataclass(frozen=True, slots=True)
class DrainSession:
    """Say when the driver has taken all that was to be sent. Answer: SessionDrained."""

    session: int


@dataclass(frozen=True, slots=True)
class EndConnection:
    """A connection object is over for good: its calls and waits fail."""

    session: int
    cause: Ending | AeronSparkError


@dataclass(frozen=True, slots=True)
class Notify:
    """Call the listeners of a connection, after those of what came before."""

    session: int
    notice: Notice


@dataclass(frozen=True, slots=True)
class ForgetConnection:
    """No effect names this session any more."""

    session: int


@dataclass(frozen=True, slots=True)
class Report:
    """Hand an error to the error listeners."""

    error: Exception


@dataclass(frozen=True, slots=True)
class ReopenTransport:
    """Look for a media driver, and listen again."""


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
    | Report
    | ReopenTransport
)
ServerEffects = tuple[ServerEffect, ...]

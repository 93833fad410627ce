"""What happens to a server, as its machine is told of it.

``image`` is the transport's number of a sender; ``path`` (the image and the response publication of one handshake),
``link`` and ``session`` are the machine's numbers, and never given twice. Each class that answers an effect names it:
see ``server_effects``.
"""

from __future__ import annotations

from dataclasses import dataclass

from aeron_spark.errors import AeronSparkError
from aeron_spark.protocol.access import Grant
from aeron_spark.protocol.refusals import Refusal

Decision = Refusal | Grant | None
"""What key store and filters say of a client; None: it may come, and do everything."""


@dataclass(frozen=True, slots=True)
class ImageAvailable:
    """A sender appeared on a handshake stream of the server. ``late``: it had sent something before, which is lost.

    ``data_port`` and ``control_port`` are those of the server's address at which it appeared.
    """

    image: int
    source: str
    data_port: int = 0
    control_port: int = 0
    late: bool = False


@dataclass(frozen=True, slots=True)
class ImageUnavailable:
    """The sender of an image is gone."""

    image: int


@dataclass(frozen=True, slots=True)
class Packet:
    """A message of a handshake's image. ``data`` is read before ``handle`` returns."""

    image: int
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class PathReady:
    """The response publication of a path is connected."""

    path: int


@dataclass(frozen=True, slots=True)
class PathFailed:
    """The response publication of a path could not be opened."""

    path: int


@dataclass(frozen=True, slots=True)
class PathDrained:
    """Answers ``DrainPath``: nothing waits to be sent there."""

    path: int


@dataclass(frozen=True, slots=True)
class Decided:
    """Answers ``Decide``."""

    path: int
    decision: Decision


@dataclass(frozen=True, slots=True)
class ConnectionMade:
    """Answers ``MakeConnection``."""

    session: int


@dataclass(frozen=True, slots=True)
class ConnectionFailed:
    """Answers ``MakeConnection``: the connection class raised ``error``."""

    session: int
    error: Exception


@dataclass(frozen=True, slots=True)
class LinkReady:
    """Answers ``OpenLink``: the driver has opened both directions. The session has ``received`` so many records."""

    link: int
    received: int


@dataclass(frozen=True, slots=True)
class LinkFailed:
    """A link could not be opened, its first frame is not the client's, or it cannot be used any more."""

    link: int
    error: Exception


@dataclass(frozen=True, slots=True)
class LinkVerified:
    """The first frame was decrypted with the link's keys; the client has ``received`` so many of our records."""

    link: int
    received: int


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """Answers ``Attach``: the link carries the session now."""

    link: int


@dataclass(frozen=True, slots=True)
class LinkExpired:
    """A link that carried a session was silent for longer than the expiry."""

    link: int


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """A session cannot go on."""

    session: int
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class SessionDrained:
    """Answers ``DrainSession``: the driver has taken all that was to be sent."""

    session: int


@dataclass(frozen=True, slots=True)
class PeerClosed:
    """The client sent CLOSE."""

    session: int
    keep_session: bool


@dataclass(frozen=True, slots=True)
class DriverLost:
    """The media driver is gone, and with it every image, path and link."""

    reason: str


ServerEvent = (
    ImageAvailable
    | ImageUnavailable
    | Packet
    | PathReady
    | PathFailed
    | PathDrained
    | Decided
    | ConnectionMade
    | ConnectionFailed
    | LinkReady
    | LinkFailed
    | LinkVerified
    | LinkAttached
    | LinkExpired
    | SessionFailed
    | SessionDrained
    | PeerClosed
    | DriverLost
)

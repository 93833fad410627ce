"""The events of the server machine.

``image`` is the transport's number of a sender. ``path`` (the image and the response publication of one handshake),
``link`` and ``session`` are numbers that the machine allots and uses once. An event that is the result of an effect
names that effect, see ``server_effects``.
"""

from __future__ import annotations

from dataclasses import dataclass

from aeron_spark.errors import AeronSparkError
from aeron_spark.protocol.grants import Grant
from aeron_spark.protocol.sources import Refusal

Decision = Refusal | Grant
"""The decision of the grants and filters on a client."""


@dataclass(frozen=True, slots=True)
class ImageAvailable:
    """An image of a new sender on a handshake stream. ``late``: the server missed the sender's first messages.

    ``data_port`` and ``control_port`` belong to the server address at which the image appeared.
    """

    image: int
    source: str
    data_port: int = 0
    control_port: int = 0
    late: bool = False


@dataclass(frozen=True, slots=True)
class ImageUnavailable:
    """The image of a sender became unavailable."""

    image: int


@dataclass(frozen=True, slots=True)
class Packet:
    """A message of a handshake's image. ``data`` must be valid until ``handle`` returns."""

    image: int
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class PathReady:
    """Result of ``OpenPath``: the response publication is connected."""

    path: int


@dataclass(frozen=True, slots=True)
class PathFailed:
    """Result of ``OpenPath``: the response publication could not be opened."""

    path: int


@dataclass(frozen=True, slots=True)
class PathDrained:
    """Result of ``DrainPath``: Aeron has taken all packets."""

    path: int


@dataclass(frozen=True, slots=True)
class Decided:
    """Result of ``Decide``."""

    path: int
    decision: Decision


@dataclass(frozen=True, slots=True)
class ConnectionMade:
    """Result of ``MakeConnection``."""

    session: int


@dataclass(frozen=True, slots=True)
class ConnectionFailed:
    """Result of ``MakeConnection``: the connection class raised ``error``."""

    session: int
    error: Exception


@dataclass(frozen=True, slots=True)
class LinkReady:
    """Result of ``OpenLink``: both directions are open. ``received``: records of the session that the server has."""

    link: int
    received: int


@dataclass(frozen=True, slots=True)
class LinkFailed:
    """A link could not be opened, was lost, or its first frame is not from the client."""

    link: int
    error: Exception


@dataclass(frozen=True, slots=True)
class LinkVerified:
    """The first frame was decrypted with the link's keys. The client has ``received`` records of the session."""

    link: int
    received: int


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """Result of ``Attach``: the link carries the session from now on."""

    link: int


@dataclass(frozen=True, slots=True)
class LinkExpired:
    """No frame arrived on a session's link for longer than the expiry."""

    link: int


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """A session cannot continue."""

    session: int
    error: AeronSparkError


@dataclass(frozen=True, slots=True)
class SessionDrained:
    """Result of ``DrainSession``: Aeron has taken all messages."""

    session: int


@dataclass(frozen=True, slots=True)
class PeerClosed:
    """The client sent CLOSE."""

    session: int
    keep_session: bool


@dataclass(frozen=True, slots=True)
class DriverLost:
    """The media driver was lost, with every image, path and link."""

    reason: str


SessionEvent = SessionFailed | SessionDrained | PeerClosed

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

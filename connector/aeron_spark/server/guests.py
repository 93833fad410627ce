"""Who is connected to a server, or may come back: a connection with what it holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from aeron_spark.connection.connection import Connection
from aeron_spark.connection.home import PeerInfo
from aeron_spark.connection.link import LinkEnds
from aeron_spark.protocol.access import Grant
from aeron_spark.protocol.limits import Permit
from aeron_spark.transport.api import LinkIds


@dataclass(slots=True, eq=False)
class ServerSession:
    """``ticket`` is the one that its client used last; ``permit`` its place among the connections."""

    connection: Connection
    grant: Grant | None
    permit: Permit
    ticket: bytes = field(default=b"", repr=False)
    link: LinkEnds | None = field(default=None, repr=False)
    ids: LinkIds | None = None
    away_since: float | None = None  # since when no duologue is there, until listeners were told
    told_connected: bool = False
    told_disconnected: bool = False


@dataclass(frozen=True, slots=True)
class AcceptedHandshake:
    """A duologue that was opened for a client that proved who it is; DONE_ACK is to follow."""

    guest: ServerSession
    who: PeerInfo
    ids: LinkIds
    ticket: bytes = field(repr=False)
    permit: Permit | None  # of one that had given its place back while it was away


@dataclass(frozen=True, slots=True)
class AwaitingFirstFrame:
    """A duologue whose first frame is awaited."""

    guest: ServerSession
    who: PeerInfo  # it may come back from another address
    link: LinkEnds
    ids: LinkIds
    ticket: bytes = field(repr=False)
    permit: Permit | None

"""Who is connected to a server, or may come back: a connection with what it holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from aeron_spark.connection.connection import Connection
from aeron_spark.connection.home import Who
from aeron_spark.connection.link import Link
from aeron_spark.protocol.access import Grant
from aeron_spark.protocol.limits import Permit
from aeron_spark.transport.api import DuologueIds


@dataclass(slots=True, eq=False)
class Guest:
    """``ticket`` is the one that its client used last; ``permit`` its place among the connections."""

    connection: Connection
    grant: Grant | None
    permit: Permit
    ticket: bytes = field(default=b"", repr=False)
    link: Link | None = field(default=None, repr=False)
    ids: DuologueIds | None = None
    away_since: float | None = None  # since when no duologue is there, until listeners were told
    told_connected: bool = False
    told_disconnected: bool = False


@dataclass(frozen=True, slots=True)
class Invited:
    """A duologue that was opened for a client that proved who it is; DONE_ACK is to follow."""

    guest: Guest
    who: Who
    ids: DuologueIds
    ticket: bytes = field(repr=False)
    permit: Permit | None  # of one that had given its place back while it was away


@dataclass(frozen=True, slots=True)
class Arriving:
    """A duologue whose first frame is awaited."""

    guest: Guest
    who: Who  # it may come back from another address
    link: Link
    ids: DuologueIds
    ticket: bytes = field(repr=False)
    permit: Permit | None

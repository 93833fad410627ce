"""Faults of a connection and of a server, which tests of writers choose."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from aeron_spark.wire.stream_requests import Request


class Fault(Enum):
    """The fate of a request, or of the next operation of the server."""

    NONE = auto()
    LOSE = auto()  # it never arrives
    LOSE_RESPONSE = auto()
    REPEAT = auto()  # it arrives twice
    DELAY = auto()  # it arrives after later ones, and its response never does
    BREAK = auto()  # the connection and its session end before it arrives
    BREAK_AFTER = auto()  # the same before its response arrives
    KILL = auto()  # the server is killed before it arrives, and restarts some seconds later
    KILL_AFTER = auto()  # the same before its response arrives
    KILL_AT_PUBLISH = auto()  # the server is killed before it publishes rows the next time
    KILL_AFTER_PUBLISH = auto()  # the same after it has published them
    KILL_AT_JOURNAL = auto()  # the server is killed before it writes to the journal the next time
    KILL_AFTER_JOURNAL = auto()  # the same after the record is on the disk
    STOP = auto()  # the server runs nothing for some seconds, and then all that waits
    BUSY = auto()  # the server responds that it still works on the commit
    FULL_DISK = auto()  # the server cannot write the next rows of a stage
    FULL_JOURNAL = auto()  # the server cannot write the next record of the journal
    NO_RECORDING = auto()  # the archive cannot record the next message
    CUT_LINK = auto()  # the next message on a bulk link is lost, and the link closes


class Done(Enum):
    """When the server runs a request whose response is lost in an outage."""

    NOW = auto()
    LATER = auto()  # after the outage and other requests
    NEVER = auto()


@dataclass(frozen=True)
class Outage:
    """An outage that begins with the next request of a class and lasts longer than a writer waits."""

    request: type[Request[Any]]
    done: Done

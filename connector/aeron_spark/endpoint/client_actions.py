"""The words of the client's handshake: its states, its events, and the actions that the runtime carries out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from aeron_spark.endpoint.cipher import Opening, Sealing
from aeron_spark.endpoint.payloads import DoneAck, ServerHello
from aeron_spark.errors import AeronSparkError


class State(Enum):
    """Where an attempt is."""

    NEW = "nothing was sent"
    AWAIT_HELLO_ACK = "HELLO was sent"
    AWAIT_DONE_ACK = "the server's key is verified, DONE was sent"
    CONNECTED = "the server accepted; the duologue can be opened"
    ENDED = "the attempt is over"


class Event(Enum):
    """What can happen to an attempt."""

    START = "the way to the server is open"
    RETRY = "hint: send HELLO again, with a cookie"
    REFUSAL = "hint: the server refuses"
    HELLO_ACK = "a HELLO_ACK for our connect key arrives"
    DONE_ACK = "a DONE_ACK for our connect key arrives"
    FAILED = "a FAILED for our connect key arrives"
    DEADLINE = "the step took too long"
    WAY_LOST = "the publication or the image is gone"
    CLOSE = "the user wants no more of it"


OURS: Final = frozenset({Event.START})
"""What only our own program does; everything else may come at any time."""


@dataclass(frozen=True, slots=True)
class Send:
    """Offer this packet until it is taken."""

    packet: bytes


@dataclass(frozen=True, slots=True)
class Reopen:
    """Leave the publication that the server rejected, and open one with another session id for what follows."""


@dataclass(frozen=True, slots=True)
class Connected:
    """The server accepted. Now its key may be stored, and the duologue opened; the first frames prove the keys."""

    sealing: Sealing
    opening: Opening
    server_key: bytes
    hello: ServerHello
    ack: DoneAck
    handshake_hash: bytes


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The attempt has failed; the error says why, and whether another one can help.

    ``put_off``: the server seems to refuse for a while only. ``proved``: the refusal is authenticated as the server's.
    """

    error: AeronSparkError
    put_off: bool = False
    proved: bool = False


@dataclass(frozen=True, slots=True)
class Ignored:
    """Something came that changes nothing. For the log and the counters."""

    why: str


Action = Send | Reopen | Connected | Abandoned | Ignored
Actions = tuple[Action, ...]

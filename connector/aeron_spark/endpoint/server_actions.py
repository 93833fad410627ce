"""The words of the server's handshake: its states, its events, and the actions that the runtime carries out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from aeron_spark.endpoint.cipher import Opening, Sealing
from aeron_spark.endpoint.payloads import ClientDone
from aeron_spark.endpoint.refusal import Refusal


class State(Enum):
    """Where the handshake of an image is."""

    AWAIT_HELLO = "an image appeared"
    ADMITTING = "HELLO came with a good cookie; limits are asked"
    OPENING = "counted as pending; the way back is being opened"
    AWAIT_DONE = "HELLO_ACK was sent"
    AUTHENTICATING = "the client has proved its key; limits, filters and ids are asked"
    CONNECTED = "DONE_ACK was sent"
    ENDED = "the handshake is over"


class Event(Enum):
    """What can happen to the handshake of an image."""

    MISSED = "the image begins behind what its sender has said already"
    HELLO = "a HELLO arrives"
    DONE = "a DONE for our connect key arrives"
    STRANGE = "something that is no packet of a client"
    OTHER_VERSION = "a packet of another version"
    ADMITTED = "the runtime counts it as pending"
    REPLY_OPENED = "the way back is connected"
    ACCEPTED = "the runtime has made a duologue"
    REFUSED = "the runtime refuses"
    DEADLINE = "the step took too long"
    WAY_LOST = "the image or the way back is gone"
    CLOSE = "the server shuts down"


OURS: Final = frozenset({Event.ADMITTED, Event.REPLY_OPENED, Event.ACCEPTED, Event.REFUSED})
"""What only our own program does; everything else may come at any time."""


@dataclass(frozen=True, slots=True)
class Reject:
    """Reject the image with this reason (``Image.reject``): it reaches the sender alone, as a hint."""

    reason: str


@dataclass(frozen=True, slots=True)
class Admit:
    """Count a pending handshake from ``address`` (None: IPC), or refuse it."""

    address: str | None
    key_hash: bytes


@dataclass(frozen=True, slots=True)
class OpenReply:
    """Open a small response publication to the sender."""


@dataclass(frozen=True, slots=True)
class Send:
    """Offer this packet on the response publication until it is taken."""

    packet: bytes


@dataclass(frozen=True, slots=True)
class Authenticate:
    """The client has proved to own this key: look at limits, filters, keys and tickets; accept or refuse."""

    client_key: bytes
    done: ClientDone


@dataclass(frozen=True, slots=True)
class Connected:
    """DONE_ACK is on its way. The keys are the duologue's; the client's first frame proves that it has them, too."""

    sealing: Sealing
    opening: Opening
    client_key: bytes
    done: ClientDone
    handshake_hash: bytes


@dataclass(frozen=True, slots=True)
class Release:
    """Give back whatever this handshake holds, once what was sent is gone. ``refusal`` is what the client was told."""

    why: str
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Ignored:
    """Something came that changes nothing. For the log and the counters."""

    why: str


Action = Reject | Admit | OpenReply | Send | Authenticate | Connected | Release | Ignored
Actions = tuple[Action, ...]

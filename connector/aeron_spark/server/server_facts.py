"""The facts of a server beside those of its connections and streams, for its log, its metrics and its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from aeron_spark.endpoint.connection import ConnectionCore
from aeron_spark.errors import AeronSparkError
from aeron_spark.protocol.sources import Refusal, Source

DRIVER_LOST: Final = "driver-lost"  # reason of the error that reports the loss of the media driver


@dataclass(frozen=True, slots=True)
class HandshakeEnded:
    """A handshake has ended. Emitted on the event loop.

    ``result`` is "retry" for a sender that was asked to prove its address, or left before that. ``key`` and ``tag`` are
    those of a client that has proved its key. ``seconds`` is the time since its first packet.
    """

    result: Literal["accepted", "refused", "retry", "lost"]
    source: Source
    refusal: Refusal | None
    key: bytes | None
    tag: str
    seconds: float


@dataclass(frozen=True, slots=True)
class EventReported:
    """An event of ``event_table`` was reported; the limits of the log do not apply here."""

    name: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StreamRead:
    """A reader gets bytes of a stream. Emitted on a thread of the transfers."""

    stream: str
    size: int


@dataclass(frozen=True, slots=True)
class GrantChanged:
    """The grant of a connection's client has changed: everything that it does not cover ends.

    With ``refusal``, the client is not admitted any more, and everything of it ends with this error.
    """

    connection: ConnectionCore
    refusal: AeronSparkError | None = None


@dataclass(frozen=True, slots=True)
class DriverBack:
    """The server has connected to a media driver again, after a loss. Emitted on the event loop."""

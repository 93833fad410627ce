"""The facts of a server beside those of its connections and streams, for its log, its metrics and its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aeron_spark.connection.runner import ConnectionRunner
from aeron_spark.errors import AeronSparkError


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

    connection: ConnectionRunner
    refusal: AeronSparkError | None = None


@dataclass(frozen=True, slots=True)
class DriverBack:
    """The server has connected to a media driver again, after a loss. Emitted on the event loop."""

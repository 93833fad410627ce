"""What a row of the option table is, where an option may be given, and what its text must be."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from aeron_spark.options.values import INT64_MAX


class Where(Enum):
    """Where an option may be given."""

    READ_STREAM = "read stream"
    READ_BATCH = "read batch"
    WRITE_STREAM = "write stream"
    WRITE_BATCH = "write batch"
    SERVER = "server"
    CLIENT = "client"


class Route(Enum):
    """How Spark reaches a stream."""

    DIRECT = "direct"
    SERVER = "server"


class ValueType(Enum):
    """What an option's text must be."""

    TEXT = "text"
    CHANNEL = "Aeron URI"
    ARCHIVES = "Aeron URIs, or `embedded`"
    RESPONSE = "Aeron URI, or `response`"
    PATH = "path"
    WHOLE = "whole number"
    SIZE = "size"
    DURATION = "duration"
    FLAG = "true or false"
    CHOICE = "one of"
    OFFSETS = "offsets"
    MOMENT = "time"
    TIMESTAMP_FROM = "place"
    SESSIONS = "session ids"
    NUMBER = "number"
    DURATION_OR_ZERO = "duration, or 0"
    SPAN = "range"
    PORT_SPAN = "range of ports"
    PORT_PAIR = "ports"
    ADDRESS = "address"
    ADDRESSES = "addresses"
    NETWORKS = "networks"
    PUBLIC_KEY = "public key"
    PUBLIC_KEYS = "public keys"
    STREAM = "name"
    IDENTITY = "path, name or `env:NAME`"


READING: Final = frozenset({Where.READ_STREAM, Where.READ_BATCH})
WRITING: Final = frozenset({Where.WRITE_STREAM, Where.WRITE_BATCH})
STREAMING_WRITE: Final = frozenset({Where.WRITE_STREAM})
EVERYWHERE: Final = READING | WRITING
BATCH_READ: Final = frozenset({Where.READ_BATCH})
SERVER: Final = frozenset({Where.SERVER})
CLIENT: Final = frozenset({Where.CLIENT})
ENDPOINT: Final = SERVER | CLIENT


@dataclass(frozen=True, slots=True)
class Option:
    """One row. ``default`` is the text that stands in when it is not given; None where there is none."""

    name: str
    kind: ValueType
    default: str | None
    meaning: str
    where: frozenset[Where]
    example: str
    batch_default: str | None = None  # where a batch has another one
    choices: tuple[str, ...] = ()
    low: int = 0
    high: int = INT64_MAX
    ignored: frozenset[Where] = frozenset()  # accepted and checked there, without effect, as Spark's Kafka source does
    shown_default: str | None = None  # for the documentation, where the default is not a text
    way: Route | None = None  # the only way to a stream that it belongs to; None: both

    @property
    def flag(self) -> str:
        """How the command line spells it: ``--max-connections``."""
        return "--" + _hyphenated(self.name)

    @property
    def argument(self) -> str:
        """How Python spells it: ``max_connections``."""
        return _hyphenated(self.name).replace("-", "_")

    def default_in(self, where: Where) -> str | None:
        """Give the default text in this place."""
        if where is Where.READ_BATCH and self.batch_default is not None:
            return self.batch_default
        return self.default


def _hyphenated(name: str) -> str:
    return re.sub("([A-Z])", r"-\1", name).lower()

"""Requests that list, describe, create, delete and purge the streams of a server."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

import pyarrow as pa

from aeron_spark import units
from aeron_spark.errors import OptionError
from aeron_spark.options import values
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.units import INT64_MAX, NANOS
from aeron_spark.wire.stream_rpc import (
    CreateStream,
    DeleteStream,
    DescribeStream,
    ListStreams,
    PurgeStream,
    StreamDescription,
)

RETENTION_REMEDY: Final = "Give a size such as 10GiB or 512MiB, a time such as 7d, 12h or 30min, or both: 10GiB,7d."
_AMBIGUOUS: Final = re.compile(r"\d+(?:\.\d+)?\s*m?", re.ASCII)  # megabytes or minutes, bytes or seconds


@dataclass(frozen=True, slots=True)
class StreamPartition:
    """One partition: ``start`` is its first position, ``end`` the position after its last committed row, in bytes."""

    number: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """The state of a stream on its server.

    ``content`` is ``raw``, ``framed``, ``arrow``, or empty before the first rows; ``schema`` that of ``arrow`` rows.
    Retention keeps at least ``retention_bytes`` of each partition and ``retention_seconds``; 0: no limit. ``state`` is
    ``ok``, ``read-only``, ``damaged``, ``recovering`` (the server tries to open it again) or ``ended``; ``problem`` has
    the cause and the remedy. A damaged stream has no partitions here.
    """

    name: str
    content: str
    schema: pa.Schema | None
    partitions: tuple[StreamPartition, ...]
    retention_bytes: int
    retention_seconds: float
    created: datetime
    state: str = "ok"
    problem: str = ""

    @property
    def bytes(self) -> int:
        """The size of all partitions, as bytes of the log."""
        return sum(partition.end - partition.start for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention of a stream: bytes of each partition, and seconds. 0: no limit of this kind."""

    bytes: int = 0
    seconds: float = 0.0


def list_streams(session: StreamSession) -> list[StreamInfo]:
    """Return all streams that this client is granted, sorted by name."""
    return sorted(map(_info, session.call(ListStreams()).streams), key=lambda info: info.name)


def describe_stream(session: StreamSession, name: str, *, timeout_s: float | None = None) -> StreamInfo:
    """Return one stream. Raises OptionError with the nearest name if it does not exist, and its problem if damaged."""
    return _info(session.call(DescribeStream(name), timeout=timeout_s))


def inspect_stream(session: StreamSession, name: str) -> StreamInfo:
    """Return one stream, also a damaged one. Raises OptionError with the nearest name if it does not exist."""
    return _info(session.call(DescribeStream(name, accept_damaged=True)))


def create_stream(
    session: StreamSession, name: str, partitions: int, retention: Retention, term_bytes: int = 0
) -> StreamInfo:
    """Create a stream. Raises OptionError for invalid values, or if a stream has this name."""
    return _info(session.call(CreateStream(name, partitions, retention.bytes, float(retention.seconds), term_bytes)))


def delete_stream(session: StreamSession, name: str) -> None:
    """Delete a stream with all its rows."""
    session.call(DeleteStream(name))


def purge_stream(
    session: StreamSession, name: str, before: int | str | datetime, *, partition: int | None = None,
    now: Callable[[], int] = time.time_ns,
) -> list[int]:  # fmt: skip
    """Delete whole segments before a position or a commit time; return the new start of each partition."""
    if isinstance(before, int):
        request = PurgeStream(name, partition, before_position=before)
    else:
        request = PurgeStream(name, partition, before_time_ns=max(0, time_of(before, now())))
    return list(session.call(request).positions)


def parse_retention(value: str | int | timedelta | None) -> Retention:
    """Parse a retention: bytes as a number or text, a time as timedelta or text, both as ``10GiB,7d``.

    Raises OptionError, also for ``64m``, which can be megabytes or minutes.
    """
    if value is None:
        return Retention()
    if isinstance(value, timedelta):
        return Retention(seconds=_positive(value.total_seconds(), value))
    if isinstance(value, int):
        return Retention(bytes=int(_positive(value, value)))
    size, seconds = 0, 0.0
    for part in (text.strip().lower() for text in value.split(",")):
        found = _parse_limit(part, value)
        if (size and found.bytes) or (seconds and found.seconds):
            raise OptionError(f"the retention {value!r} has two limits of the same kind", remedy=RETENTION_REMEDY)
        size, seconds = size + found.bytes, seconds + found.seconds
    return Retention(size, seconds)


def time_of(value: str | datetime, now_ns: int) -> int:
    """Return a time as ns since 1970: an ISO text, one such as ``-10min``, or a datetime; UTC without a zone."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        return int(aware.timestamp() * 1_000_000) * 1000
    try:
        return values.parse_moment(value).at(now_ns)
    except ValueError as error:
        raise OptionError(f"a time must be {error}, not {value!r}", remedy="Correct it.") from None


def _parse_limit(text: str, retention: str) -> Retention:
    if _AMBIGUOUS.fullmatch(text):
        number = text.rstrip("m").strip()
        choices = f"{number}MiB or {number}min" if text.endswith("m") else f"{number}B or {number}s"
        raise OptionError(f"the retention {retention!r} may be a size or a time", remedy=f"Write {choices}.")
    try:
        return Retention(bytes=units.parse_size(text, 1, INT64_MAX))
    except ValueError:
        pass
    try:
        return Retention(seconds=units.parse_duration_ns(text) / NANOS)
    except ValueError:
        raise OptionError(f"{retention!r} is not a retention", remedy=RETENTION_REMEDY) from None


def _positive(number: float, value: object) -> float:
    if number <= 0:
        raise OptionError(f"a retention must be more than 0, not {value}", remedy="Give more than 0, or leave it out.")
    return number


def _info(found: StreamDescription) -> StreamInfo:
    return StreamInfo(
        name=found.name,
        content=found.content,
        schema=pa.ipc.read_schema(pa.py_buffer(found.schema)) if found.schema else None,
        partitions=tuple(StreamPartition(part.partition, part.start, part.end) for part in found.partitions),
        retention_bytes=found.retention_bytes,
        retention_seconds=found.retention_seconds,
        created=datetime.fromtimestamp(found.created_ns / NANOS, tz=timezone.utc),
        state=found.state,
        problem=found.problem,
    )

"""The streams of a server as a list, and their making and unmaking."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

import pyarrow as pa

from aeron_spark.errors import OptionError
from aeron_spark.options import values
from aeron_spark.options.values import INT64_MAX, NANOS
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.wire.stream_rpc import (
    CreateStream,
    DeleteStream,
    DescribeStream,
    ListStreams,
    PurgeStream,
    StreamDescription,
)

RETENTION_REMEDY: Final = "Give a size such as 10GiB or 512MiB, a time such as 7d, 12h or 30min, or both: 10GiB,7d."
_UNCLEAR: Final = re.compile(r"\d+(?:\.\d+)?\s*m?", re.ASCII)  # of a retention: megabytes or minutes, bytes or seconds


@dataclass(frozen=True, slots=True)
class StreamPartition:
    """One partition: ``start`` is the first position there is, ``end`` is behind the last committed row, in bytes."""

    number: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream as its server knows it.

    ``content`` is ``raw``, ``framed``, ``arrow``, or empty before the first rows; ``schema`` that of ``arrow`` rows.
    ``retention_bytes`` (of each partition) and ``retention_seconds`` say what is kept at least; 0 is everything.
    ``state`` is ``ok``, ``read-only``, ``damaged``, ``recovering`` (the server tries again to open it) or ``ended``;
    ``problem`` says what is wrong and what to do. Of a damaged stream no partitions are known.
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
        """What all partitions hold, as bytes of the log."""
        return sum(one.end - one.start for one in self.partitions)


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept at least: bytes of each partition, and seconds. 0: no limit of this kind."""

    bytes: int = 0
    seconds: float = 0.0


def list_streams(session: StreamSession) -> list[StreamInfo]:
    """Return all streams that this client may use, by name."""
    return sorted(map(_info, session.call(ListStreams()).streams), key=lambda one: one.name)


def describe_stream(session: StreamSession, name: str, *, timeout_s: float | None = None) -> StreamInfo:
    """Return one stream. Raises OptionError, with the nearest name, where there is none, and what is wrong with it."""
    return _info(session.call(DescribeStream(name), timeout=timeout_s))


def inspect_stream(session: StreamSession, name: str) -> StreamInfo:
    """Return one stream, also where it is damaged. Raises OptionError, with the nearest name, where there is none."""
    return _info(session.call(DescribeStream(name, accept_damaged=True)))


def create_stream(
    session: StreamSession, name: str, partitions: int, kept: Retention, term_bytes: int = 0
) -> StreamInfo:
    """Create a stream. Raises OptionError for what cannot be, or where there is one of this name."""
    return _info(session.call(CreateStream(name, partitions, kept.bytes, float(kept.seconds), term_bytes)))


def delete_stream(session: StreamSession, name: str) -> None:
    """Delete a stream with all its rows."""
    session.call(DeleteStream(name))


def purge_stream(
    session: StreamSession, name: str, before: int | str | datetime, *, partition: int | None = None,
    now: Callable[[], int] = time.time_ns,
) -> list[int]:  # fmt: skip
    """Delete whole segments before a position, or before what was committed at a time; return all starts then."""
    if isinstance(before, int):
        request = PurgeStream(name, partition, before_position=before)
    else:
        request = PurgeStream(name, partition, before_time_ns=max(0, time_of(before, now())))
    return list(session.call(request).positions)


def parse_retention(given: str | int | timedelta | None) -> Retention:
    """Read a retention: bytes as a number or text, a time as timedelta or text, both as ``10GiB,7d``.

    Raises OptionError; for ``64m``, too, which may be megabytes or minutes.
    """
    if given is None:
        return Retention()
    if isinstance(given, timedelta):
        return Retention(seconds=_positive(given.total_seconds(), given))
    if isinstance(given, int):
        return Retention(bytes=int(_positive(given, given)))
    size, seconds = 0, 0.0
    for part in (text.strip().lower() for text in given.split(",")):
        found = _one_retention(part, given)
        if (size and found.bytes) or (seconds and found.seconds):
            raise OptionError(f"the retention {given!r} says the same twice", remedy=RETENTION_REMEDY)
        size, seconds = size + found.bytes, seconds + found.seconds
    return Retention(size, seconds)


def time_of(given: str | datetime, now_ns: int) -> int:
    """Return a time as ns since 1970: an ISO text, one such as ``-10min``, or a datetime; UTC without a zone."""
    if isinstance(given, datetime):
        aware = given if given.tzinfo else given.replace(tzinfo=timezone.utc)
        return int(aware.timestamp() * 1_000_000) * 1000
    try:
        return values.parse_moment(given).at(now_ns)
    except ValueError as error:
        raise OptionError(f"a time must be {error}, not {given!r}", remedy="Correct it.") from None


def _one_retention(text: str, given: str) -> Retention:
    if _UNCLEAR.fullmatch(text):
        number = text.rstrip("m").strip()
        meant = f"{number}MiB or {number}min" if text.endswith("m") else f"{number}B or {number}s"
        raise OptionError(f"the retention {given!r} may be a size or a time", remedy=f"Write {meant}.")
    try:
        return Retention(bytes=values.parse_size(text, 1, INT64_MAX))
    except ValueError:
        pass
    try:
        return Retention(seconds=values.parse_duration_ns(text) / NANOS)
    except ValueError:
        raise OptionError(f"{given!r} is no retention", remedy=RETENTION_REMEDY) from None


def _positive(number: float, given: object) -> float:
    if number <= 0:
        raise OptionError(f"a retention of {given} keeps nothing", remedy="Give more than 0, or leave it out.")
    return number


def _info(found: StreamDescription) -> StreamInfo:
    return StreamInfo(
        name=found.name,
        content=found.content,
        schema=pa.ipc.read_schema(pa.py_buffer(found.schema)) if found.schema else None,
        partitions=tuple(StreamPartition(one.partition, one.start, one.end) for one in found.partitions),
        retention_bytes=found.retention_bytes,
        retention_seconds=found.retention_seconds,
        created=datetime.fromtimestamp(found.created_ns / NANOS, tz=timezone.utc),
        state=found.state,
        problem=found.problem,
    )

"""Requests that administer the streams of a server: list, create, alter, rename, end, purge and delete them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

import pyarrow as pa

from aeron_spark import texts
from aeron_spark.errors import OptionError
from aeron_spark.options import values
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.texts import INT64_MAX, NANOS
from aeron_spark.waiting import Deadline
from aeron_spark.wire.stream_requests import (
    AlterStream,
    CreateStream,
    DeleteStream,
    DescribeStream,
    EndStream,
    HeldBytes,
    ListLeases,
    ListStreams,
    ListWriters,
    PurgedPartition,
    PurgeStream,
    ReleaseLease,
    ReleaseWriter,
    RenameStream,
    ReopenStream,
    StreamAlteration,
    StreamInfo,
    StreamLease,
    StreamWriterId,
)

RETENTION_REMEDY: Final = "Give a size such as 10GiB or 512MiB, a time such as 7d, 12h or 30min, or both: 10GiB,7d."
_AMBIGUOUS: Final = re.compile(r"\d+(?:\.\d+)?\s*m?", re.ASCII)  # megabytes or minutes, bytes or seconds


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention of a stream: bytes of each partition, and seconds. 0: no limit of this kind."""

    bytes: int = 0
    seconds: float = 0.0


def list_streams(session: StreamSession) -> list[StreamInfo]:
    """Return all streams that this client is granted, sorted by name."""
    return sorted(session.call(ListStreams()).streams, key=lambda info: info.name)


def describe_stream(session: StreamSession, name: str, *, timeout_s: float | None = None) -> StreamInfo:
    """Return one stream. Raises OptionError with the nearest name if it does not exist, and its problem if damaged."""
    return session.call(DescribeStream(name), timeout=timeout_s)


def inspect_stream(session: StreamSession, name: str) -> StreamInfo:
    """Return one stream, also a damaged one. Raises OptionError with the nearest name if it does not exist."""
    return session.call(DescribeStream(name, accept_damaged=True))


def create_stream(
    session: StreamSession, name: str, partitions: int, retention: Retention, segment_bytes: int = 0,
    schema_policy: str = "strict", schema: pa.Schema | None = None, *, exist_ok: bool = False,
) -> StreamInfo:  # fmt: skip
    """Create a stream. Raises OptionError for invalid values, or if a stream has this name.

    With ``exist_ok`` returns the stream that has this name, whatever its properties are.
    """
    _check_counts(partitions=partitions, segment_bytes=segment_bytes)
    encoded = b"" if schema is None else bytes(_checked_schema(schema).serialize())
    request = CreateStream(
        name, partitions, retention.bytes, float(retention.seconds), segment_bytes, schema_policy, encoded
    )
    try:
        return session.call(request)
    except OptionError as error:
        if error.reason != "exists" or not (exist_ok or error.repeated):
            raise
        found = describe_stream(session, name)
        if not exist_ok and len(found.partitions) != partitions:  # another program's stream
            raise
        return found


def alter_stream(
    session: StreamSession, name: str, retention: Retention | None, schema_policy: str | None, *, dry_run: bool = False
) -> StreamAlteration:
    """Change the properties that are given, or with ``dry_run`` return the effect of the change."""
    size, seconds = (None, None) if retention is None else (retention.bytes, retention.seconds)
    return session.call(AlterStream(name, size, seconds, schema_policy, dry_run))


def rename_stream(session: StreamSession, name: str, new_name: str) -> StreamInfo:
    """Rename a stream. Raises OptionError for an unknown name, and for one that another stream has."""
    return session.call(RenameStream(name, new_name))


def end_stream(session: StreamSession, name: str) -> StreamInfo:
    """End a stream: it takes no more rows."""
    return session.call(EndStream(name))


def reopen_stream(session: StreamSession, name: str) -> StreamInfo:
    """Let an ended stream take rows again."""
    return session.call(ReopenStream(name))


def list_writers(session: StreamSession, name: str) -> list[StreamWriterId]:
    """Return the writer ids of a stream, in their order."""
    found: list[StreamWriterId] = []
    while True:
        listed = session.call(ListWriters(name, found[-1].id if found else ""))
        found += listed.writers
        if not listed.has_more:
            return found


def release_writer(session: StreamSession, name: str, writer: str) -> None:
    """Let any key use a writer id. Raises OptionError for an unknown id."""
    session.call(ReleaseWriter(name, writer))


def list_leases(session: StreamSession, name: str) -> list[StreamLease]:
    """Return the leases of a stream's readers."""
    return list(session.call(ListLeases(name)).leases)


def release_lease(session: StreamSession, name: str, reader: str) -> None:
    """End the leases of a reader. Raises OptionError for a reader without a lease."""
    session.call(ReleaseLease(name, reader))


def delete_stream(session: StreamSession, name: str) -> None:
    """Delete a stream with all its rows."""
    try:
        session.call(DeleteStream(name))
    except OptionError as error:
        if not (error.repeated and error.reason == "unknown-stream"):  # else the first try has deleted it
            raise


def parse_retention(value: str | int | timedelta | None) -> Retention:
    """Parse a retention: bytes as a number or text, a time as timedelta or text, both as ``10GiB,7d``.

    Raises OptionError, also for ``64m``, which can be megabytes or minutes.
    """
    if value is None:
        return Retention()
    if isinstance(value, timedelta):
        return Retention(seconds=_positive(value.total_seconds(), value))
    if isinstance(value, int) and not isinstance(value, bool):
        return Retention(bytes=int(_positive(value, value)))
    if not isinstance(value, str):
        raise OptionError(f"{value!r} is not a retention", remedy=RETENTION_REMEDY)
    size, seconds = 0, 0.0
    for part in (text.strip().lower() for text in value.split(",")):
        found = _parse_limit(part, value)
        if (size and found.bytes) or (seconds and found.seconds):
            raise OptionError(f"the retention {value!r} has two limits of the same kind", remedy=RETENTION_REMEDY)
        size, seconds = size + found.bytes, seconds + found.seconds
    return Retention(size, seconds)


def parse_new_retention(value: str | int | timedelta | None) -> Retention | None:
    """Parse the retention of a change: as :func:`parse_retention`, None for no change, and ``none`` for no limit."""
    if value is None:
        return None
    return Retention() if isinstance(value, str) and value.strip().lower() == "none" else parse_retention(value)


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
        return Retention(bytes=texts.parse_size(text, 1, INT64_MAX))
    except ValueError:
        pass
    try:
        return Retention(seconds=texts.parse_duration_ns(text) / NANOS)
    except ValueError:
        raise OptionError(f"{retention!r} is not a retention", remedy=RETENTION_REMEDY) from None


def _positive(number: float, value: object) -> float:
    if not number > 0:
        raise OptionError(f"a retention must be more than 0, not {value}", remedy="Give more than 0, or leave it out.")
    return number


def _checked_schema(schema: object) -> pa.Schema:
    if not isinstance(schema, pa.Schema):
        raise OptionError(
            f"a schema must be a pyarrow.Schema, not {type(schema).__name__}", remedy="Give pa.schema(…)."
        )
    return schema


def _check_counts(**counts: object) -> None:
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int):
            raise OptionError(f"{name} must be a whole number, not {count!r}", remedy="Give a number.")


SEGMENT: Final = "segment"  # the only reason that ends with later purges or the retention alone
REPEAT_S: Final = 1.0  # between two requests of a wait; the server's housekeeping has this interval


def purge_stream(
    session: StreamSession, name: str, before: int | str | datetime, *, partition: int | None = None,
    wait_s: float = 0.0, now: Callable[[], int] = time.time_ns, clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> list[PurgedPartition]:  # fmt: skip
    """Make the transactions before a position or a commit time unreadable, and free their space.

    With ``wait_s`` it waits until everything is freed except bytes whose segment has readable rows. Raises WaitTimeout
    after so many seconds; what was unreadable then stays unreadable.
    """
    if isinstance(before, int):
        request = PurgeStream(name, partition, before_position=before)
    else:
        request = PurgeStream(name, partition, before_time_ns=max(0, time_of(before, now())))
    purged = list(session.call(request).partitions)
    awaited = f"the space of stream {name!r} to be freed"
    deadline = Deadline(wait_s, awaited, clock=clock, sleep=lambda _: sleep(REPEAT_S))
    while wait_s and (held := _still_held(purged)):
        deadline.idle("; ".join(sorted({one.sentence for one in held})))
        purged = [_joined(*both) for both in zip(purged, session.call(request).partitions, strict=True)]
    return purged


def _still_held(purged: Sequence[PurgedPartition]) -> list[HeldBytes]:
    return [held for one in purged for held in one.held if held.why != SEGMENT]


def _joined(first: PurgedPartition, then: PurgedPartition) -> PurgedPartition:
    """Return both purges of a partition as one. Between them, the housekeeping freed what the second one did not."""
    freed = first.freed_bytes + _on_disk(first) + then.start - first.start - _on_disk(then)
    return PurgedPartition(first.number, first.before, then.start, freed, then.held)


def _on_disk(purged: PurgedPartition) -> int:
    """Return the unreadable bytes that are still on the disk."""
    return sum(held.bytes for held in purged.held if held.why != "lease")

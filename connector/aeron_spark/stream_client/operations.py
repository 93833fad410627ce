"""The operations of programs on the streams of a server, each once: list, create, alter, rename, purge and others.

``Client`` has the methods of :class:`StreamOperations`, and ``aio.Client`` those of :class:`AwaitedStreamOperations`.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

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
    ListStages,
    ListStreams,
    ListWriters,
    MeasureStream,
    PurgedPartition,
    PurgeStream,
    ReleaseLease,
    ReleaseWriter,
    RenameStream,
    ReopenStream,
    StreamAlteration,
    StreamInfo,
    StreamLease,
    StreamStage,
    StreamUsage,
    StreamWriterId,
)

RETENTION_REMEDY: Final = "Give a size such as 10GiB or 512MiB, a time such as 7d, 12h or 30min, or both: 10GiB,7d."
SEGMENT: Final = "segment"  # the only reason that ends with later purges or the retention alone
REPEAT_S: Final = 1.0  # between two requests of a wait; the server's housekeeping has this interval
_AMBIGUOUS: Final = re.compile(r"\d+(?:\.\d+)?\s*m?", re.ASCII)  # megabytes or minutes, bytes or seconds


P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention of a stream: bytes of each partition, and seconds. 0: no limit of this kind."""

    bytes: int = 0
    seconds: float = 0.0


def describe_stream(session: StreamSession, name: str, *, timeout_s: float | None = None) -> StreamInfo:
    """Return one stream. Raises OptionError with the nearest name if it does not exist, and its problem if damaged."""
    return session.call(DescribeStream(name), timeout=timeout_s)


class StreamOperations(ABC):
    """The operations of a client on the streams of its server. A repeated request is executed only once."""

    @abstractmethod
    def _stream_session(self) -> StreamSession:
        """Return the client's use of the server's stream service."""

    def streams(self) -> list[StreamInfo]:
        """Return the server's streams that this client may use, sorted by name, with their positions and states."""
        return sorted(self._stream_session().call(ListStreams()).streams, key=lambda info: info.name)

    def stream(self, name: str) -> StreamInfo:
        """Return one stream; for a damaged one, with ``state`` and ``problem``."""
        return self._stream_session().call(DescribeStream(name, accept_damaged=True))

    def stream_usage(self, name: str) -> StreamUsage:
        """Return the space that a stream uses on the server's disk, and how far its readers are behind."""
        return self._stream_session().call(MeasureStream(name))

    def create_stream(
        self,
        name: str,
        partitions: int = 1,
        *,
        retention: str | int | timedelta | None = None,
        segment_bytes: int = 0,
        schema_policy: str = "strict",
        schema: pa.Schema | None = None,
        exist_ok: bool = False,
    ) -> StreamInfo:
        """Create a stream. ``retention``: bytes of a partition (``"10GiB"``), a time (``"7d"``), or both.

        Without ``retention`` the server deletes nothing. ``segment_bytes``, a power of two from 1 MiB to 1 GiB, is the
        size of the files in which space is freed, and eight times the longest ``raw`` value. 0 is the server's choice:
        an eighth of the retention in bytes, from 1 to 16 MiB; 16 MiB without one. With the ``schema_policy`` ``strict``
        the first transaction, or ``schema``, fixes the columns; ``additive`` lets every writer add nullable columns.
        With ``schema`` the stream takes only ``arrow`` rows. Raises OptionError with the reason "exists" if a stream of
        that name exists; ``exist_ok`` returns that stream instead, also if it has other properties.
        """
        kept = parse_retention(retention)
        _check_counts(partitions=partitions, segment_bytes=segment_bytes)
        encoded = b"" if schema is None else bytes(_checked_schema(schema).serialize())
        session = self._stream_session()
        try:
            return session.call(
                CreateStream(name, partitions, kept.bytes, float(kept.seconds), segment_bytes, schema_policy, encoded)
            )
        except OptionError as error:
            if error.reason != "exists" or not (exist_ok or error.repeated):
                raise
            found = describe_stream(session, name)
            if not exist_ok and len(found.partitions) != partitions:  # another program's stream
                raise
            return found

    def alter_stream(
        self,
        name: str,
        *,
        retention: str | int | timedelta | None = None,
        schema_policy: str | None = None,
        dry_run: bool = False,
    ) -> StreamAlteration:
        """Change the retention or the schema policy of a stream; return both before and after the change.

        ``retention`` is as in :meth:`create_stream`, and ``"none"`` for no limit; None leaves it unchanged. It replaces
        both limits. The server applies it within some seconds. With ``dry_run`` nothing changes.
        """
        new = parse_new_retention(retention)
        size, seconds = (None, None) if new is None else (new.bytes, new.seconds)
        return self._stream_session().call(AlterStream(name, size, seconds, schema_policy, dry_run))

    def rename_stream(self, name: str, new_name: str) -> StreamInfo:
        """Rename a stream. Readers, writers and Spark queries continue with the new name where they were.

        Requests under the former name fail, and their error has the new name, until another stream gets the former
        name. Raises OptionError if a stream has the new name.
        """
        return self._stream_session().call(RenameStream(name, new_name))

    def end_stream(self, name: str) -> StreamInfo:
        """End a stream: it takes no more rows, and readers that follow it end after its last row."""
        return self._stream_session().call(EndStream(name))

    def reopen_stream(self, name: str) -> StreamInfo:
        """Let an ended stream take rows again."""
        return self._stream_session().call(ReopenStream(name))

    def stream_writers(self, name: str) -> list[StreamWriterId]:
        """Return the writer ids of a stream, with their last transactions and the keys that own them."""
        session, found = self._stream_session(), list[StreamWriterId]()
        while True:
            listed = session.call(ListWriters(name, found[-1].id if found else ""))
            found += listed.writers
            if not listed.has_more:
                return found

    def release_writer(self, name: str, writer_id: str) -> None:
        """Take a writer id from its key: the next key that writes under the id owns it, and continues its numbers."""
        self._stream_session().call(ReleaseWriter(name, writer_id))

    def stream_stages(self, name: str) -> list[StreamStage]:
        """Return the stages of a stream: rows that its writers have sent and not committed yet, by writer."""
        session, found = self._stream_session(), list[StreamStage]()
        while True:
            listed = session.call(ListStages(name, found[-1].id if found else ""))
            found += listed.stages
            if not listed.has_more:
                return sorted(found, key=lambda one: (one.writer, one.transaction, one.partition, one.id))

    def stream_leases(self, name: str) -> list[StreamLease]:
        """Return the leases of a stream's readers, which delay its retention."""
        return list(self._stream_session().call(ListLeases(name)).leases)

    def release_lease(self, name: str, reader: str) -> None:
        """End the leases of a reader. A reader that still runs takes another one within 15 s."""
        self._stream_session().call(ReleaseLease(name, reader))

    def delete_stream(self, name: str) -> None:
        """Delete a stream with all its rows."""
        try:
            self._stream_session().call(DeleteStream(name))
        except OptionError as error:
            if not (error.repeated and error.reason == "unknown-stream"):  # else the first try has deleted it
                raise

    def purge_stream(
        self, name: str, before: int | str | datetime, *, partition: int | None = None, wait: float = 0.0
    ) -> list[PurgedPartition]:
        """Make the transactions before a position, or before a time (``"-7d"``, ISO), unreadable, and free their space.

        It applies to one partition or to all. Returns for each of them its first position before and now, the bytes
        that were freed now, and those that are freed later, with the reason. Rows that a reader has leased become
        unreadable when the lease ends. ``wait`` is the longest wait in seconds until everything is freed except bytes
        whose segment has readable rows; raises WaitTimeout after it.
        """
        if isinstance(before, int):
            request = PurgeStream(name, partition, before_position=before)
        else:
            request = PurgeStream(name, partition, before_time_ns=max(0, time_of(before, time.time_ns())))
        session = self._stream_session()
        purged = list(session.call(request).partitions)
        awaited = f"the space of stream {name!r} to be freed"
        deadline = Deadline(wait, awaited, clock=session.clock, sleep=lambda _: session.sleep(REPEAT_S))
        while wait and (held := _still_held(purged)):
            deadline.idle("; ".join(sorted({one.sentence for one in held})))
            purged = [_joined(*both) for both in zip(purged, session.call(request).partitions, strict=True)]
        return purged


def awaited(
    operation: Callable[Concatenate[StreamOperations, P], R],
) -> Callable[Concatenate[AwaitedStreamOperations, P], Coroutine[Any, Any, R]]:
    """Return the method with the arguments and the documentation of ``operation`` whose result is awaited."""

    @wraps(operation)
    async def call(self: AwaitedStreamOperations, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._on_thread(partial(operation, self._opened(), *args, **kwargs))

    return call


class AwaitedStreamOperations(ABC):
    """The operations on streams for the coroutines of a program. Each waits on a thread of the client."""

    @abstractmethod
    def _opened(self) -> StreamOperations:
        """Return the client without asyncio."""

    @abstractmethod
    async def _on_thread(self, call: Callable[[], R]) -> R:
        """Return the result of a call on a thread of the client."""

    streams = awaited(StreamOperations.streams)
    stream = awaited(StreamOperations.stream)
    stream_usage = awaited(StreamOperations.stream_usage)
    create_stream = awaited(StreamOperations.create_stream)
    alter_stream = awaited(StreamOperations.alter_stream)
    rename_stream = awaited(StreamOperations.rename_stream)
    end_stream = awaited(StreamOperations.end_stream)
    reopen_stream = awaited(StreamOperations.reopen_stream)
    stream_writers = awaited(StreamOperations.stream_writers)
    release_writer = awaited(StreamOperations.release_writer)
    stream_stages = awaited(StreamOperations.stream_stages)
    stream_leases = awaited(StreamOperations.stream_leases)
    release_lease = awaited(StreamOperations.release_lease)
    delete_stream = awaited(StreamOperations.delete_stream)
    purge_stream = awaited(StreamOperations.purge_stream)


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


def _still_held(purged: Sequence[PurgedPartition]) -> list[HeldBytes]:
    return [held for one in purged for held in one.held if held.why != SEGMENT]


def _joined(first: PurgedPartition, then: PurgedPartition) -> PurgedPartition:
    """Return both purges of a partition as one. Between them, the housekeeping freed what the second one did not."""
    freed = first.freed_bytes + _on_disk(first) + then.start - first.start - _on_disk(then)
    return PurgedPartition(first.number, first.before, then.start, freed, then.held)


def _on_disk(purged: PurgedPartition) -> int:
    """Return the unreadable bytes that are still on the disk."""
    return sum(held.bytes for held in purged.held if held.why != "lease")

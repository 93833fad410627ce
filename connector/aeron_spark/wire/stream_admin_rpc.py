"""The requests to a server's stream service that administer streams, and their responses; see ``wire.stream_rpc``."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import cached_property
from typing import Annotated, Final, Generic, TypeVar

import msgspec
import pyarrow as pa

from aeron_spark.units import NANOS
from aeron_spark.wire.foreign_arrow import read_schema

MAX_PARTITIONS: Final = 10_000  # of a stream: responses about positions have a number for each
MAX_SCHEMA_BYTES: Final = 2 << 20  # of Arrow IPC: it takes 0.1 s to look at, with some 28,000 columns

# Each text, number and list of a request has one of these bounds, which the decoder checks: a client must not make the
# server store, compare or report more. No request has a map: a client could choose keys that collide, and a map with
# n such keys costs n² steps. A longer value of the right kind gets its own error from the module that it concerns.
StreamName = Annotated[str, msgspec.Meta(max_length=128)]
Id = Annotated[str, msgspec.Meta(max_length=255)]  # of a writer, run, producer, reader or stage
Word = Annotated[str, msgspec.Meta(max_length=32)]  # one of a few
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Finite = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
Schema = Annotated[bytes, msgspec.Meta(max_length=MAX_SCHEMA_BYTES)]
_Bytes = bytes  # in a class with a property of this name
Positions = Annotated[tuple[tuple[Int64, Int64], ...], msgspec.Meta(max_length=MAX_PARTITIONS)]
"""Pairs of a partition and a position in it."""


class Response(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all responses."""


ResponseT = TypeVar("ResponseT", bound=Response)


class Request(msgspec.Struct, Generic[ResponseT], frozen=True, forbid_unknown_fields=True):
    """The base of all requests; ``ResponseT`` is the response to a request that succeeds."""


class Done(Response, frozen=True, tag="done"):
    """The request succeeded, and its response has no values."""


class StreamPartition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One partition: ``start`` is its first position, ``end`` the position after its last committed row, in bytes."""

    number: int = msgspec.field(name="partition")
    start: int
    end: int


class StreamInfo(Response, frozen=True, tag="stream", dict=True):
    """The state of a stream on its server.

    ``content`` is ``raw``, ``framed``, ``arrow``, or empty before the first rows; ``schema`` that of ``arrow`` rows.
    Retention keeps ``retention_bytes`` of each partition, and ``retention_seconds``; 0: no limit. ``state`` is
    ``ok``, ``read-only``, ``damaged``, ``recovering`` (the server tries to open it again) or ``ended``; ``problem`` has
    the cause and the remedy. A damaged stream has no partitions here. ``schema_policy`` is ``strict`` or ``additive``.
    ``former_names`` are the names before it was renamed. ``ended`` is the time from which it takes no more rows.
    ``segment_bytes`` is the size of its segments as it was created. ``file_bytes`` is the size of its files, which a
    node that the server joined may make longer; a partition holds at most so many bytes besides its readable rows.
    ``max_message_bytes`` is the size of its longest message.
    """

    name: str
    state: str
    problem: str
    content: str
    encoded_schema: _Bytes = msgspec.field(name="schema")  # Arrow IPC, empty without a schema
    created_ns: int
    retention_bytes: int
    retention_seconds: Finite
    segment_bytes: int
    file_bytes: int
    partitions: tuple[StreamPartition, ...]
    schema_policy: str
    former_names: tuple[str, ...]
    ended_ns: int  # 0 for a stream that takes rows
    max_message_bytes: int

    @cached_property
    def schema(self) -> pa.Schema | None:
        """The schema of ``arrow`` rows."""
        return read_schema(self.encoded_schema) if self.encoded_schema else None

    @property
    def created(self) -> datetime:
        """The time of its creation."""
        return _time(self.created_ns)

    @property
    def ended(self) -> datetime | None:
        """The time from which it takes no more rows."""
        return _time(self.ended_ns) if self.ended_ns else None

    @property
    def bytes(self) -> int:
        """The size of all partitions, as bytes of the log."""
        return sum(partition.end - partition.start for partition in self.partitions)

    def __repr__(self) -> str:
        """Return the attributes that a program reads, without the encoded ones: programs print them."""
        return f"StreamInfo({', '.join(f'{name}={getattr(self, name)!r}' for name in _PRINTED)})"


class StreamList(Response, frozen=True, tag="streams"):
    """The streams that the client's grant allows it to use, sorted by name."""

    streams: tuple[StreamInfo, ...]


class StreamProperties(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The properties of a stream that AlterStream changes; a retention of 0 is no limit."""

    retention_bytes: int
    retention_seconds: Finite
    schema_policy: str


class StreamAlteration(Response, frozen=True, tag="altered"):
    """A change of a stream: its properties before and after.

    ``starts`` and ``kept_from`` have by partition its start, and the position from which the retention keeps rows.
    """

    before: StreamProperties
    after: StreamProperties
    starts: tuple[int, ...]
    kept_from: tuple[int, ...]

    @property
    def unreadable_bytes(self) -> tuple[int, ...]:
        """The bytes of each partition that the retention afterwards does not keep now.

        Readers with leases can delay their deletion.
        """
        return tuple(max(0, kept - start) for start, kept in zip(self.starts, self.kept_from, strict=True))


class StreamWriterId(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A writer id of a stream: the number of its last transaction (-1: none), and the time of its last change.

    ``owner`` is the fingerprint of the key to which the id belongs, or empty. A ``single_use`` id is forgotten a day
    after its last change.
    """

    id: str
    last: int
    time_ns: int
    owner: str
    single_use: bool

    @property
    def changed(self) -> datetime:
        """The time of its last change."""
        return _time(self.time_ns)


class WriterList(Response, frozen=True, tag="writer-list"):
    """Writer ids, in their order; ``has_more`` if further ids follow the last one."""

    writers: tuple[StreamWriterId, ...]
    has_more: bool


class StreamLease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lease of a reader, the fingerprint of its key, and the seconds until the lease expires."""

    reader: str
    owner: str
    pairs: Positions = msgspec.field(name="positions")
    seconds: Finite

    @property
    def positions(self) -> dict[int, int]:
        """The first position that it keeps, by partition."""
        return dict(self.pairs)


class LeaseList(Response, frozen=True, tag="lease-list"):
    """The leases of a stream that have not expired."""

    leases: tuple[StreamLease, ...]


class ListStreams(Request[StreamList], frozen=True, tag="list"):
    """List the streams that the client may use, including damaged ones."""


class DescribeStream(Request[StreamInfo], frozen=True, tag="describe"):
    """Describe a stream. For a damaged stream, fails with the stream's error unless ``accept_damaged`` is true."""

    stream: StreamName
    accept_damaged: bool = False


class CreateStream(Request[StreamInfo], frozen=True, tag="create"):
    """Create a stream. A retention of 0 means no limit; ``segment_bytes`` 0 means the server's default.

    With ``schema`` (Arrow IPC) the stream has Arrow rows of this schema from the beginning; empty: the first
    transaction gives it content and schema.
    """

    stream: StreamName
    partitions: Int64
    retention_bytes: Int64
    retention_seconds: Finite
    segment_bytes: Int64
    schema_policy: Word = "strict"
    schema: Schema = b""


class AlterStream(Request[StreamAlteration], frozen=True, tag="alter"):
    """Change the retention and the schema policy of a stream; None leaves a value unchanged, a retention of 0 ends it.

    With ``dry_run`` the server changes nothing, and responds as if it had.
    """

    stream: StreamName
    retention_bytes: Int64 | None = None
    retention_seconds: Finite | None = None
    schema_policy: Word | None = None
    dry_run: bool = False


class RenameStream(Request[StreamInfo], frozen=True, tag="rename"):
    """Rename a stream."""

    stream: StreamName
    new_name: StreamName


class EndStream(Request[StreamInfo], frozen=True, tag="end"):
    """End a stream: it takes no more rows, and its followers end after its last row."""

    stream: StreamName


class ReopenStream(Request[StreamInfo], frozen=True, tag="reopen"):
    """Let an ended stream take rows again."""

    stream: StreamName


class ListWriters(Request[WriterList], frozen=True, tag="writers"):
    """List the writer ids of a stream after the id ``after``, in their order, up to a number that the server sets."""

    stream: StreamName
    after: Id = ""


class ReleaseWriter(Request[Done], frozen=True, tag="release-writer"):
    """Let any key use a writer id: the next one that writes under it owns it."""

    stream: StreamName
    writer: Id


class ListLeases(Request[LeaseList], frozen=True, tag="leases"):
    """List the leases of the readers of a stream."""

    stream: StreamName


class ReleaseLease(Request[Done], frozen=True, tag="release-lease"):
    """End the leases of a reader."""

    stream: StreamName
    reader: Id


class HeldBytes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that a purge did not free, and why.

    ``why`` is ``segment`` (their segment file also has readable rows), ``recording`` (the partition has no rows, and
    the server moves it to another file within a minute), ``lease`` (the rows stay readable until the lease of
    ``reader`` ends, at ``until`` unless the reader renews it) or ``hold`` (``holder``, such as a backup, uses the
    files). With ``lease``, ``holder`` is the fingerprint of the reader's key.
    """

    bytes: int
    why: str
    holder: str = ""
    reader: str = ""
    until_ns: int = 0

    @property
    def until(self) -> datetime | None:
        """The end of the lease, None without one."""
        return _time(self.until_ns) if self.until_ns else None

    @property
    def sentence(self) -> str:
        """The reason in words."""
        match self.why:
            case "segment":
                return "segment in use"
            case "recording":
                return "moves to another file within a minute"
            case "lease":
                until = "" if self.until is None else f" until {self.until:%H:%M:%S}Z"
                return f"lease of {self.reader}{until}"
            case _:
                return self.holder or self.why


class PurgedPartition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A purge of one partition: its first position before and after it, and the bytes of files that it freed."""

    number: int = msgspec.field(name="partition")
    before: int
    start: int
    freed_bytes: int = msgspec.field(name="freed")
    held: tuple[HeldBytes, ...] = ()

    @property
    def unreadable_bytes(self) -> int:
        """The bytes that are unreadable since the purge."""
        return self.start - self.before

    @property
    def has_changed(self) -> bool:
        """Whether the purge changed the partition."""
        return bool(self.unreadable_bytes or self.freed_bytes)


class PurgeReport(Response, frozen=True, tag="purged"):
    """The result of a purge in each requested partition."""

    partitions: tuple[PurgedPartition, ...]


class DeleteStream(Request[Done], frozen=True, tag="delete"):
    """Delete a stream with all its rows."""

    stream: StreamName


class PurgeStream(Request[PurgeReport], frozen=True, tag="purge"):
    """Make the transactions before a position or a time unreadable, of one partition or of all, and free their space.

    Rows under a lease follow when it ends.
    """

    stream: StreamName
    partition: Int64 | None = None
    before_position: Int64 | None = None
    before_time_ns: Int64 | None = None


AdminRequest = (
    ListStreams | DescribeStream | CreateStream | AlterStream | RenameStream | EndStream | ReopenStream | DeleteStream
    | PurgeStream | ListWriters | ReleaseWriter | ListLeases | ReleaseLease
)  # fmt: skip
AdminResponse = Done | StreamInfo | StreamList | StreamAlteration | PurgeReport | WriterList | LeaseList


_PRINTED: Final = (
    "name", "content", "schema", "partitions", "retention_bytes", "retention_seconds", "created", "state", "problem",
    "schema_policy", "former_names", "ended", "segment_bytes", "file_bytes", "max_message_bytes",
)  # fmt: skip


def with_content(found: StreamInfo, content: str) -> StreamInfo:
    """Return the stream with the content that its first rows have given it."""
    return msgspec.structs.replace(found, content=content)


def _time(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns / NANOS, tz=timezone.utc)

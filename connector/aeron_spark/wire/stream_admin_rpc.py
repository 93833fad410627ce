"""The requests to a server's stream service that administer streams, and their responses; see ``wire.stream_rpc``."""

from __future__ import annotations

from typing import Annotated, Final, Generic, TypeVar

import msgspec

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
Positions = Annotated[tuple[tuple[Int64, Int64], ...], msgspec.Meta(max_length=MAX_PARTITIONS)]
"""Pairs of a partition and a position in it."""


class Response(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all responses."""


ResponseT = TypeVar("ResponseT", bound=Response)


class Request(msgspec.Struct, Generic[ResponseT], frozen=True, forbid_unknown_fields=True):
    """The base of all requests; ``ResponseT`` is the response to a request that succeeds."""


class Done(Response, frozen=True, tag="done"):
    """The request succeeded, and its response has no values."""


class PartitionRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition, its first position, and the position after its last committed row."""

    partition: int
    start: int
    end: int


class StreamDescription(Response, frozen=True, tag="stream"):
    """A stream; see ``stream_client.admin.StreamInfo``. ``schema`` is empty for a stream without a schema.

    ``ended_ns`` is the time at which it was ended, 0 for a stream that takes rows. ``segment_bytes`` is the size of its
    segments as it was created, ``file_bytes`` the size that the archive gives them. ``max_message_bytes`` is the size
    of its longest message.
    """

    name: str
    state: str
    problem: str
    content: str
    schema: bytes
    created_ns: int
    retention_bytes: int
    retention_seconds: Finite
    segment_bytes: int
    file_bytes: int
    partitions: tuple[PartitionRange, ...]
    schema_policy: str
    former_names: tuple[str, ...]
    ended_ns: int
    max_message_bytes: int


class StreamList(Response, frozen=True, tag="streams"):
    """The streams that the client's grant allows it to use, sorted by name."""

    streams: tuple[StreamDescription, ...]


class StreamProperties(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The properties of a stream that AlterStream changes."""

    retention_bytes: int
    retention_seconds: Finite
    schema_policy: str


class StreamAltered(Response, frozen=True, tag="altered"):
    """The properties before and after; by partition its start, and the position from which the retention keeps rows."""

    before: StreamProperties
    after: StreamProperties
    starts: tuple[int, ...]
    kept_from: tuple[int, ...]


class WriterEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A writer id of a stream; ``last`` is its last transaction, -1 for none, ``owner`` the fingerprint of a key."""

    id: str
    last: int
    time_ns: int
    owner: str
    single_use: bool


class WriterList(Response, frozen=True, tag="writer-list"):
    """Writer ids, in their order; ``has_more`` if further ids follow the last one."""

    writers: tuple[WriterEntry, ...]
    has_more: bool


class LeaseEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lease of a reader: its first position by partition, its key's fingerprint, the seconds until it expires."""

    reader: str
    owner: str
    positions: Positions
    seconds: Finite


class LeaseList(Response, frozen=True, tag="lease-list"):
    """The leases of a stream that have not expired."""

    leases: tuple[LeaseEntry, ...]


class ListStreams(Request[StreamList], frozen=True, tag="list"):
    """List the streams that the client may use, including damaged ones."""


class DescribeStream(Request[StreamDescription], frozen=True, tag="describe"):
    """Describe a stream. For a damaged stream, fails with the stream's error unless ``accept_damaged`` is true."""

    stream: StreamName
    accept_damaged: bool = False


class CreateStream(Request[StreamDescription], frozen=True, tag="create"):
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


class AlterStream(Request[StreamAltered], frozen=True, tag="alter"):
    """Change the retention and the schema policy of a stream; None leaves a value unchanged, a retention of 0 ends it.

    With ``dry_run`` the server changes nothing, and responds as if it had.
    """

    stream: StreamName
    retention_bytes: Int64 | None = None
    retention_seconds: Finite | None = None
    schema_policy: Word | None = None
    dry_run: bool = False


class RenameStream(Request[StreamDescription], frozen=True, tag="rename"):
    """Rename a stream."""

    stream: StreamName
    new_name: StreamName


class EndStream(Request[StreamDescription], frozen=True, tag="end"):
    """End a stream: it takes no more rows, and its followers end after its last row."""

    stream: StreamName


class ReopenStream(Request[StreamDescription], frozen=True, tag="reopen"):
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
    """Bytes that a purge did not free, and why; see ``streams.model.HeldBytes``."""

    bytes: int
    why: str
    holder: str
    reader: str
    until_ns: int


class PurgedPartition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A purge of one partition; see ``streams.model.PurgedPartition``."""

    partition: int
    before: int
    start: int
    freed: int
    held: tuple[HeldBytes, ...]


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
AdminResponse = Done | StreamDescription | StreamList | StreamAltered | PurgeReport | WriterList | LeaseList

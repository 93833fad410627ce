"""The requests to a server's stream service, and its responses.

A client calls the method ``METHOD`` of the remote object ``SERVICE`` with one argument, the bytes of a request. The
response, also bytes, is the request's own or Failure. Both are MessagePack of a tagged struct: its tag and its field
names are on the wire. The first change of a struct after a release needs another number ``SERVICE``: a client of that
release then gets the error that the server has no such object.

A client may send a request again after any failure: the server executes a repeated request only once, or, for an
OpenStage with rows, opens a further stage, which no commit names.

In all structs, positions and sizes are in bytes, and times in nanoseconds since 1970. ``seconds`` is the server's
longest wait, and in RenewLease the duration of the lease. ``token`` is a text that the server stores with the
producer's last transaction. ``link`` is the number of a bulk link, and ``request`` the client's number for the messages
of this read or stage on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property, reduce
from operator import or_
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, TypeVar, cast, get_args

import msgspec
import pyarrow as pa

from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError, decode_error, encode_error
from aeron_spark.texts import NANOS
from aeron_spark.wire.field_bounds import (
    MAX_PARTITIONS,
    MAX_PARTS,
    Epoch,
    Finite,
    Id,
    Int64,
    Items,
    Positions,
    Schema,
    Seconds,
    Stamp,
    StreamName,
    Token,
    Word,
    bounds_of,
    longest_encoding,
)
from aeron_spark.wire.foreign_arrow import read_schema

_Bytes = bytes  # in a class with a property of this name


class Response(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all responses."""


ResponseT = TypeVar("ResponseT", bound=Response)


class Request(msgspec.Struct, Generic[ResponseT], frozen=True, forbid_unknown_fields=True):
    """The base of all requests; ``ResponseT`` is the response to a request that succeeds."""


class StreamRequest(Request[ResponseT], Generic[ResponseT], frozen=True):
    """A request about one stream."""

    stream: StreamName


Action = Literal["read", "write", "create", "manage", "purge"]
"""The actions that a grant allows on a stream."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A class of requests: its ``response``, and the rules of the server.

    The client's grant needs one of ``actions`` on the stream; none for a request without a stream. A server that is
    about to end refuses what ``begins`` further work, and with a nearly full disk what ``writes``. The server reports
    ``event`` with the fields of the request when it has succeeded.
    """

    response: type[Response]
    actions: tuple[Action, ...]
    event: str
    begins: bool
    writes: bool


OPERATIONS: Final[dict[type[Request[Any]], Operation]] = {}
RequestT = TypeVar("RequestT", bound=Request[Any])


def operation(
    *actions: Action, event: str = "", begins: bool = False, writes: bool = False
) -> Callable[[type[RequestT]], type[RequestT]]:
    """Return the decorator that adds a class of requests to OPERATIONS; see :class:`Operation`."""

    def add(kind: type[RequestT]) -> type[RequestT]:
        if issubclass(kind, StreamRequest) is not bool(actions):
            raise TypeError(f"{kind.__name__} must have a stream and actions, or neither")
        (response,) = get_args(vars(kind)["__orig_bases__"][0])
        OPERATIONS[kind] = Operation(response, actions, event, begins, writes)
        return kind

    return add


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


class StreamStage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows of a transaction that is not committed yet: the rows of one partition, or a part of them.

    ``owner`` is the fingerprint of the writer's key. ``finished`` is whether all rows are there. The server removes the
    stage when its writer has not used it for ``expires_in`` more seconds.
    """

    id: str
    writer: str
    transaction: int
    partition: int
    bytes: int
    owner: str
    finished: bool
    expires_in: Finite


class StageList(Response, frozen=True, tag="stage-list"):
    """Stages, in the order of their ids; ``has_more`` if further ones follow."""

    stages: tuple[StreamStage, ...]
    has_more: bool


@operation()
class ListStreams(Request[StreamList], frozen=True, tag="list"):
    """List the streams that the client may use, including damaged ones."""


@operation(*get_args(Action))
class DescribeStream(StreamRequest[StreamInfo], frozen=True, tag="describe"):
    """Describe a stream. For a damaged stream, fails with the stream's error unless ``accept_damaged`` is true."""

    accept_damaged: bool = False


class StreamUsage(Response, frozen=True, tag="usage"):
    """The readable bytes of a stream, the bytes of its files on the disk, and what delays their deletion.

    ``stages`` is the number of unfinished or uncommitted stages. ``leases`` is the number of readers with a lease. The
    lags are the largest of these readers: bytes after its positions, and seconds since the first of them was committed.
    """

    bytes: int
    disk_bytes: int
    stages: int
    leases: int
    lag_bytes: int
    lag_seconds: Finite


@operation(*get_args(Action))
class MeasureStream(StreamRequest[StreamUsage], frozen=True, tag="measure"):
    """Measure the space that a stream uses, and how far its readers are behind."""


@operation("create", event="stream_created", writes=True)
class CreateStream(StreamRequest[StreamInfo], frozen=True, tag="create"):
    """Create a stream. A retention of 0 means no limit; ``segment_bytes`` 0 means the server's default.

    With ``schema`` (Arrow IPC) the stream has Arrow rows of this schema from the beginning; empty: the first
    transaction gives it content and schema.
    """

    partitions: Int64
    retention_bytes: Int64
    retention_seconds: Finite
    segment_bytes: Int64
    schema_policy: Word = "strict"
    schema: Schema = b""


@operation("manage", event="stream_altered")
class AlterStream(StreamRequest[StreamAlteration], frozen=True, tag="alter"):
    """Change the retention and the schema policy of a stream; None leaves a value unchanged, a retention of 0 ends it.

    With ``dry_run`` the server changes nothing, and responds as if it had.
    """

    retention_bytes: Int64 | None = None
    retention_seconds: Finite | None = None
    schema_policy: Word | None = None
    dry_run: bool = False


@operation("manage", event="stream_renamed")
class RenameStream(StreamRequest[StreamInfo], frozen=True, tag="rename"):
    """Give a stream another name; its rows stay."""

    new_name: StreamName


@operation("manage", event="stream_ended")
class EndStream(StreamRequest[StreamInfo], frozen=True, tag="end"):
    """End a stream: it takes no more rows, and its followers end after its last row."""


@operation("manage", event="stream_reopened")
class ReopenStream(StreamRequest[StreamInfo], frozen=True, tag="reopen"):
    """Let an ended stream take rows again."""


@operation("manage")
class ListWriters(StreamRequest[WriterList], frozen=True, tag="writers"):
    """List the writer ids of a stream after the id ``after``, in their order, up to a number that the server sets."""

    after: Id = ""


@operation("manage", event="writer_released")
class ReleaseWriter(StreamRequest[Done], frozen=True, tag="release-writer"):
    """Let any key use a writer id: the next one that writes under it owns it."""

    writer: Id


@operation("manage")
class ListStages(StreamRequest[StageList], frozen=True, tag="stages"):
    """List the stages of a stream after the id ``after``, in their order, up to a number that the server sets."""

    after: Id = ""


@operation("manage")
class ListLeases(StreamRequest[LeaseList], frozen=True, tag="leases"):
    """List the leases of the readers of a stream."""


@operation("manage", event="lease_released")
class ReleaseLease(StreamRequest[Done], frozen=True, tag="release-lease"):
    """End the leases of a reader."""

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


@operation("purge", event="stream_deleted")
class DeleteStream(StreamRequest[Done], frozen=True, tag="delete"):
    """Delete a stream with all its rows."""


@operation("purge", event="purged")
class PurgeStream(StreamRequest[PurgeReport], frozen=True, tag="purge"):
    """Make the transactions before a position or a time unreadable, of one partition or of all, and free their space.

    Rows under a lease follow when it ends.
    """

    partition: Int64 | None = None
    before_position: Int64 | None = None
    before_time_ns: Int64 | None = None


_PRINTED: Final = (
    "name", "content", "schema", "partitions", "retention_bytes", "retention_seconds", "created", "state", "problem",
    "schema_policy", "former_names", "ended", "segment_bytes", "file_bytes", "max_message_bytes",
)  # fmt: skip


def with_content(found: StreamInfo, content: str) -> StreamInfo:
    """Return the stream with the content that its first rows have given it."""
    return msgspec.structs.replace(found, content=content)


def _time(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns / NANOS, tz=timezone.utc)


SERVICE: Final = 2**62 + 2  # 2**62 + 1 had one method for each request; see protocol.rpc_objects.FIRST_SERVICE
METHOD: Final = "handle"
_A_REQUEST: Final = "a request to the stream service"
_SAME_RELEASE: Final = "Use the same release of aeron-spark in the client and the server."

NEXT_NUMBER: Final = -1  # stands for the number of the writer's next transaction


class Transaction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The identity of a transaction, from its writer to the ledger of its stream.

    The numbers of a writer's transactions increase; a request that begins the writer's next transaction has
    NEXT_NUMBER. ``single_use``: the writer id is never used again. ``producer`` is the producer id: a later run with
    the same one may repeat the transaction. With "" each producer may repeat it.

    ``acknowledged`` is the writer's last transaction before this one that the server acknowledged, -1 for none, and
    ``stamp`` came with that response, see streams.writers; "" if unknown. A server that lacks it refuses this
    transaction. ``replaced`` is the run with which the same program began the transaction before, "" for none. A
    server that does not know that run, or knows a later one, also refuses.
    """

    writer: Id
    run: Id
    number: Int64
    single_use: bool = False
    producer: Id = ""
    acknowledged: Int64 = -1
    stamp: Stamp = ""
    replaced: Id = ""

    def of_known_run(self) -> Transaction:
        """Return the transaction for a request that a server refuses if it does not know the run."""
        return msgspec.structs.replace(self, replaced=self.replaced or self.run)


class StagedPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="stage"):
    """A finished stage in a commit: its id, and the number of rows, bytes and the CRC-32 of its items."""

    id: Id
    rows: Int64
    bytes: Int64
    crc: Int64


class InlinePart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="inline"):
    """Rows of one task in the commit request itself, which has no stage for them: ``items`` and their CRC-32.

    ``partition`` None, ``task``, ``content`` and ``schema`` are as in OpenStage.
    """

    partition: Int64 | None
    task: Int64
    content: Word
    schema: Schema
    rows: Int64
    items: Items
    crc: Int64


CommitPart = StagedPart | InlinePart


class CommittedPartition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a partition for readers; see ``streams.model.PartitionState``. ``epochs``: ``Epochs.to_bytes``."""

    partition: int
    recording_id: int
    fingerprint: str
    start: int
    end: int
    term_length: int
    initial_term_id: int
    mtu: int
    stream_id: int
    session_id: int
    epochs: bytes
    checked_from: int


class Failure(Response, frozen=True, tag="failure"):
    """The request failed with ``error``, which ``errors.encode_error`` encoded."""

    error: bytes


class CommittedPartitions(Response, frozen=True, tag="partitions"):
    """The states of all partitions at the same moment.

    If ``is_ended``, no rows follow these ends. ``former_names`` are the stream's names before it was renamed.
    """

    partitions: tuple[CommittedPartition, ...]
    is_ended: bool
    former_names: tuple[str, ...]


class PartitionPositions(Response, frozen=True, tag="positions"):
    """A position in each partition."""

    positions: tuple[int, ...]


class ReaderLags(Response, frozen=True, tag="lags"):
    """By partition, how long ago the first unread row was committed, by the server's clock; 0 if all rows are read."""

    lags_ns: tuple[tuple[int, int], ...]


class BoundaryFound(Response, frozen=True, tag="boundary"):
    """The position at which a range may end, and the number of rows before it."""

    position: int
    rows: int


class CommitsSeen(Response, frozen=True, tag="seen"):
    """Whether rows were committed beyond the positions within the time."""

    is_beyond: bool


class LastCommitted(Response, frozen=True, tag="last"):
    """A writer's last committed transaction, -1 for none, and its token, "" for none."""

    transaction: int
    token: str


class Begun(Response, frozen=True, tag="begun"):
    """The writer's last committed transaction, -1 for none, its stamp, and its token, "" for none."""

    last: int
    stamp: str
    token: str = ""


class LostTransaction(Response, frozen=True, tag="lost"):
    """The first acknowledged transaction that is missing in the stream; None if none is missing."""

    transaction: int | None


class StageOpened(Response, frozen=True, tag="opened"):
    """The id of the opened stage, or "" if the transaction is committed already.

    ``partitions`` is the number of the stream's partitions, ``max_message_bytes`` the longest message of the stream.
    """

    stage: str
    partition: int
    partitions: int
    max_message_bytes: int


class StageFinished(Response, frozen=True, tag="finished"):
    """The number of rows and bytes, and the CRC-32, of a stage that the server received completely."""

    rows: int
    size: int
    crc: int


class Committed(Response, frozen=True, tag="committed"):
    """The transaction is committed; ``repeated`` if an earlier request committed it.

    ``ends`` is the end of each partition. The writer sends ``stamp`` with its next transaction.
    """

    repeated: bool
    ends: tuple[int, ...]
    stamp: str


@operation("read", "write")
class PartitionStates(StreamRequest[CommittedPartitions], frozen=True, tag="states"):
    """Return the committed state of each partition."""


@operation("read")
class FindBoundary(StreamRequest[BoundaryFound], frozen=True, tag="boundary"):
    """Find the position at which a range from ``start`` may end; see ``log.api.Boundaries``.

    ``max_rows`` None means no limit.
    """

    partition: Int64
    start: Int64
    limit: Int64
    end: Int64
    max_rows: Int64 | None
    framed: bool


@operation("read")
class FindPosition(StreamRequest[PartitionPositions], frozen=True, tag="position"):
    """Find the first position in each partition whose rows were committed at or after a time."""

    time_ns: Int64


@operation("read")
class MeasureLags(StreamRequest[ReaderLags], frozen=True, tag="measure-lags"):
    """Measure the lag of a reader that has read all rows before ``positions``, by partition."""

    positions: Positions


@operation("read")
class AwaitCommits(StreamRequest[CommitsSeen], frozen=True, tag="await"):
    """Wait until rows are committed beyond the position of any partition in ``ends``."""

    ends: Annotated[tuple[Int64, ...], msgspec.Meta(max_length=MAX_PARTITIONS)]
    seconds: Seconds


@operation("read")
class RenewLease(StreamRequest[Done], frozen=True, tag="lease"):
    """Protect rows at and after ``positions``, by partition, from retention for ``seconds``; 0 ends the lease."""

    reader: Id
    positions: Positions
    seconds: Seconds


@operation("read")
class StartRead(StreamRequest[Done], frozen=True, tag="read"):
    """Send ``[start, end)`` over the bulk link ``link``, in messages with the number ``request``.

    ``epoch`` is the epoch of the byte before ``position``. The request fails if the stream has another epoch there.
    None means that the server does not check.
    """

    partition: Int64
    start: Int64
    end: Int64
    link: Int64
    request: Int64
    epoch: Epoch | None = None
    position: Int64 = 0


@operation()
class StopRead(Request[Done], frozen=True, tag="stop"):
    """Stop a read. A read that was started later on the same link continues."""

    link: Int64
    request: Int64


@operation("write")
class LastTransaction(StreamRequest[LastCommitted], frozen=True, tag="last"):
    """Return the last transaction that a producer committed under the writer id; "" means any producer."""

    writer: Id
    producer: Id


@operation("write", begins=True, writes=True)
class BeginTransaction(StreamRequest[Begun], frozen=True, tag="begin"):
    """Begin a transaction and fence earlier runs of the writer."""

    transaction: Transaction

    @property
    def only_fences(self) -> bool:
        """Whether it fences the run of a failed commit, which is aborted, and begins no transaction."""
        return self.transaction.number == NEXT_NUMBER and bool(self.transaction.replaced)


@operation("write")
class FindLostTransaction(StreamRequest[LostTransaction], frozen=True, tag="find-lost"):
    """Find the first transaction up to ``acknowledged`` that is missing in the stream."""

    writer: Id
    acknowledged: Int64
    stamp: Stamp


@operation("write", begins=True, writes=True)
class OpenStage(StreamRequest[StageOpened], frozen=True, tag="open-stage"):
    """Open a stage that the client fills over the bulk link ``link`` with messages of the number ``request``.

    The same request, sent again, returns the same stage. With ``partition`` None, the server chooses the partition:
    the task's number modulo the number of partitions. ``max_message_bytes`` is the longest message that the client
    wants to stage; a value above the stream's limit is refused. 0 means the stream's limit. With ``evolve_schema`` the
    stage may add columns to the stream's schema, if the client's grant allows it.

    With ``items`` the request itself carries all ``rows`` rows, and ``crc`` is the CRC-32 of their items. The stage is
    finished then when the response arrives; ``link`` and ``request`` have no meaning. Such a request, sent again, opens
    another stage. A commit names one of them.
    """

    transaction: Transaction
    partition: Int64 | None
    task: Int64
    content: Word
    schema: Schema = b""
    link: Int64 = 0
    request: Int64 = 0
    max_message_bytes: Int64 = 0
    evolve_schema: bool = False
    items: Items = b""
    rows: Int64 = 0
    crc: Int64 = 0

    def with_schema(self, schema: bytes) -> OpenStage:
        """Return the request for rows of a schema, in Arrow IPC."""
        return msgspec.structs.replace(self, schema=schema)

    def over(self, link: int, request: int) -> OpenStage:
        """Return the request for messages of the number ``request`` over a bulk link."""
        return msgspec.structs.replace(self, link=link, request=request)

    def with_rows(self, rows: InlinePart) -> OpenStage:
        """Return the request that itself carries the stage's rows."""
        return msgspec.structs.replace(self, items=rows.items, rows=rows.rows, crc=rows.crc)


@operation("write")
class FinishStage(StreamRequest[StageFinished], frozen=True, tag="finish-stage"):
    """Wait until all ``size`` bytes of a stage have arrived, and finish the stage."""

    stage: Id
    size: Int64
    seconds: Seconds


@operation("write", writes=True)  # a server that ends still awaits a commit that runs, and refuses a further one
class CommitTransaction(StreamRequest[Committed], frozen=True, tag="commit"):
    """Commit a transaction: all its parts become visible together. ``rows`` is the number of the transaction's rows.

    While another commit runs, the server waits at most ``seconds``, and then fails with StillWorking. With inline parts
    the request also begins the transaction, as OpenStage does; only then ``evolve_schema`` and the state of the writer
    in ``transaction`` have a meaning.
    """

    transaction: Transaction
    parts: Annotated[tuple[CommitPart, ...], msgspec.Meta(max_length=MAX_PARTS)]
    rows: Int64
    seconds: Seconds
    token: Token = ""
    evolve_schema: bool = False


@operation("write", begins=True)
class CommitEmptyTransaction(StreamRequest[Committed], frozen=True, tag="commit-empty"):
    """Commit a transaction without rows. A separate request, so that a commit that lost its parts cannot succeed."""

    transaction: Transaction
    seconds: Seconds
    token: Token = ""


@operation("write")
class AbortTransaction(StreamRequest[Done], frozen=True, tag="abort"):
    """Delete the stages of a transaction. Has no effect on a committed transaction."""

    transaction: Transaction


def writer_of(request: Request[Any]) -> str | None:
    """Return the writer id under which a request writes; None for other requests."""
    if OPERATIONS[type(request)].actions != ("write",):
        return None
    return getattr(getattr(request, "transaction", request), "writer", None)


CommitT = TypeVar("CommitT", CommitTransaction, CommitEmptyTransaction)


def bounded(request: CommitT, seconds: float) -> CommitT:
    """Return a commit for which the server waits at most ``seconds``."""
    return msgspec.structs.replace(request, seconds=min(request.seconds, seconds))


_ENCODER: Final = msgspec.msgpack.Encoder()


class _Head(msgspec.Struct):
    """The part of a request that is decoded first, as views of its bytes; the decoder skips all other fields."""

    type: msgspec.Raw
    stream: msgspec.Raw = msgspec.Raw(_ENCODER.encode(""))


# The decoders are made during the import, by one thread: msgspec collects the fields of a class at its first use, and a
# second thread that uses the class at that moment crashes the process.
_HEAD_DECODER: Final = msgspec.msgpack.Decoder(_Head)
_WORD_DECODER: Final = msgspec.msgpack.Decoder(Word)
_NAME_DECODER: Final = msgspec.msgpack.Decoder(StreamName)
_REQUEST_DECODERS: Final = {
    request.__struct_config__.tag: (request, msgspec.msgpack.Decoder(request)) for request in OPERATIONS
}
RESPONSES: Final[tuple[type[Response], ...]] = (Failure, *dict.fromkeys(one.response for one in OPERATIONS.values()))
_RESPONSE_DECODER: Final[msgspec.msgpack.Decoder[Response]] = msgspec.msgpack.Decoder(reduce(or_, RESPONSES))


def encode_request(request: Request[Any]) -> bytes:
    """Encode a request. Raises OptionError for a value that cannot be encoded, or that the decoder would refuse."""
    for name, get, low, high, longest in bounds_of(type(request)):
        value = get(request)
        if longest is not None and value is not None and len(value) > longest:
            raise _not_sent(request, f"its {name} has a length of {len(value)}, the limit is {longest}")
        if high is not None and value is not None and not low <= value <= high:
            raise _not_sent(request, f"its {name} is {value}, expected a number from {low} to {high}")
    try:
        return _ENCODER.encode(request)
    except (OverflowError, TypeError, UnicodeEncodeError) as error:
        raise _not_sent(request, str(error)) from None


def _not_sent(request: Request[Any], reason: str) -> OptionError:
    return OptionError(
        f"{type(request).__name__} cannot be sent: {reason}",
        remedy="Give numbers of at most 64 bits, and shorter, valid text.",
    )


_MAX_HEAD_BYTES: Final = 1_024  # of a text in _Head, encoded; more than the longest stream name has


class EncodedRequest(NamedTuple):
    """The bytes of a request, its class, and the name of its stream, "" without one."""

    data: bytes | memoryview
    kind: type[Request[Any]]
    stream: str

    def decode(self) -> Request[Any]:
        """Decode the whole request. Raises DataFormatError for bytes that are not a request."""
        # The decoder copies a text before it checks its length; 15 MB stop all other Python threads for 6 to 25 ms.
        longest = longest_encoding(self.kind)
        if len(self.data) > longest:
            raise _not_a_request(f"{len(self.data)} bytes, {self.kind.__name__} has at most {longest}")
        request: Request[Any] = _decoded(_REQUEST_DECODERS[self.kind.__struct_config__.tag][1], self.data, _A_REQUEST)
        return request


def decode_head(data: bytes | memoryview) -> EncodedRequest:
    """Decode the class and the stream of a request, for the check whether its client may send it.

    Raises DataFormatError for bytes that are not a request.
    """
    head = _decoded(_HEAD_DECODER, data, _A_REQUEST)
    word = _text(_WORD_DECODER, head.type, "type")
    known = _REQUEST_DECODERS.get(word)
    if known is None:
        raise _not_a_request(f"Invalid value {word!r} - at `$.type`")
    return EncodedRequest(data, known[0], _text(_NAME_DECODER, head.stream, "stream"))


def _text(decoder: msgspec.msgpack.Decoder[str], value: msgspec.Raw, name: str) -> str:
    if len(value) > _MAX_HEAD_BYTES:
        raise _not_a_request(f"{len(value)} bytes - at `$.{name}`")
    return cast(str, _decoded(decoder, value, _A_REQUEST))


def _not_a_request(reason: str) -> DataFormatError:
    return DataFormatError(f"these bytes are not {_A_REQUEST}: {reason}", remedy=_SAME_RELEASE)


def decode_request(data: bytes) -> Request[Any]:
    """Decode a request. Raises DataFormatError for bytes that are not a request."""
    return decode_head(data).decode()


def encode_response(response: Response) -> bytes:
    return _ENCODER.encode(response)


def failure_of(error: AeronSparkError) -> Failure:
    """Return the response that carries an error to a client."""
    return Failure(encode_error(error))


def decode_response(request: Request[ResponseT], data: bytes, call: str = "") -> ResponseT:
    """Decode the response to ``request``. ``call`` is the name of its call in the server's log.

    Raises the error of a Failure, with ``call``, and DataFormatError for bytes that are not a response to this request.
    """
    response: Response = _decoded(_RESPONSE_DECODER, data, "a response of the stream service")
    if isinstance(response, Failure):
        error = decode_error(response.error)
        error.call = call
        raise error
    expected = OPERATIONS[type(request)].response
    if not isinstance(response, expected):
        raise DataFormatError(
            f"the stream service responded to {type(request).__name__} with {type(response).__name__}, expected "
            f"{expected.__name__}",
            remedy=_SAME_RELEASE,
        )
    return cast(ResponseT, response)


def _decoded(decoder: msgspec.msgpack.Decoder[Any], data: bytes | memoryview | msgspec.Raw, expected: str) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, TypeError, UnicodeDecodeError, RecursionError) as error:
        raise DataFormatError(f"these bytes are not {expected}: {error}", remedy=_SAME_RELEASE) from None

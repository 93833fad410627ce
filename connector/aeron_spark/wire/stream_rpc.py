"""Requests to a server's stream service, its answers, and the head of a message that carries rows over a bulk link.

A client sends a request as bytes: the one argument of the method ``METHOD`` of object ``SERVICE``. It gets an answer as
bytes: the one of the request, or Failure. Both are MessagePack of a tagged struct. A struct changes only together with
``SERVICE``: a client of another release then hears that the server has no such object.

A request may be sent again after any failure: the server does what it asks for once.

A message on a bulk link, all numbers little-endian:

    offset width name      meaning
    0      4     request   the number that the client gave it; a message of another request is left over from before
    4      1     kind      see BulkMessageKind
    5      3     reserved  0
    8      8     position  LOG: stream position of the first byte; END: where it ended; STAGE: bytes staged before
    16           payload   LOG, STAGE: bytes; FAILED: what errors.encode_error gives
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar, cast, get_args

import msgspec

from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError, decode_error, encode_error

SERVICE: Final = 2**62 + 2  # 2**62 + 1 had one method for each request; see endpoint.objects.FIRST_SERVICE
METHOD: Final = "handle"
_SAME_RELEASE: Final = "Use the same release of aeron-spark on both sides."

Seconds = Annotated[float, msgspec.Meta(ge=0)]


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the service sends back."""


A = TypeVar("A", bound=Answer)


class Request(msgspec.Struct, Generic[A], frozen=True, forbid_unknown_fields=True):
    """What a client sends; ``A`` is the answer where the request does not fail."""


class StagedPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A finished stage as a commit names it: its id, and the rows, bytes and CRC-32 of the items that were sent."""

    id: str
    rows: int
    bytes: int
    crc: int


class PartitionRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition, its first position, and the position behind its last committed row; both in bytes."""

    partition: int
    start: int
    end: int


class CommittedPartition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition as a reader needs it; see ``streams.view.PartitionState``. ``epochs``: ``Epochs.to_bytes``."""

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


class Failure(Answer, frozen=True, tag="failure"):
    """The request failed; ``error`` is what ``errors.encode_error`` gives."""

    error: bytes


class Done(Answer, frozen=True, tag="done"):
    """What was asked for is done."""


class StreamDescription(Answer, frozen=True, tag="stream"):
    """A stream: see ``remote.directory.StreamInfo``. ``schema`` is empty where there is none."""

    name: str
    state: str
    problem: str
    content: str
    schema: bytes
    created_ns: int
    retention_bytes: int
    retention_seconds: float
    term_bytes: int
    partitions: tuple[PartitionRange, ...]


class StreamList(Answer, frozen=True, tag="streams"):
    """The streams that the client may use, by name."""

    streams: tuple[StreamDescription, ...]


class CommittedPartitions(Answer, frozen=True, tag="partitions"):
    """All partitions at one moment."""

    partitions: tuple[CommittedPartition, ...]


class PartitionPositions(Answer, frozen=True, tag="positions"):
    """A position in each partition."""

    positions: tuple[int, ...]


class BoundaryFound(Answer, frozen=True, tag="boundary"):
    """Where a range may end, and how many rows it has then."""

    position: int
    rows: int


class CommitsSeen(Answer, frozen=True, tag="seen"):
    """Whether something was committed beyond the positions in time."""

    is_beyond: bool


class LastCommitted(Answer, frozen=True, tag="last"):
    """A writer's last committed transaction, -1 for none, with its token, "" for none."""

    transaction: int
    token: str


class Begun(Answer, frozen=True, tag="begun"):
    """The transaction that the writer committed last, -1 for none, and its stamp."""

    last: int
    stamp: str


class LostTransaction(Answer, frozen=True, tag="lost"):
    """The first acknowledged transaction that is not in the stream; None where all are."""

    transaction: int | None


class StageOpened(Answer, frozen=True, tag="opened"):
    """A stage of ``partition``, one of ``partitions``. ``stage`` is "" where the transaction is committed already."""

    stage: str
    partition: int
    partitions: int
    max_message_bytes: int


class StageFinished(Answer, frozen=True, tag="finished"):
    """The server has all of a stage: so many rows in so many bytes, and their CRC-32."""

    rows: int
    size: int
    crc: int


class Committed(Answer, frozen=True, tag="committed"):
    """The transaction is committed: ``repeated``, it was before. ``ends``: of each partition. ``stamp``: to be kept."""

    repeated: bool
    ends: tuple[int, ...]
    stamp: str


class ListStreams(Request[StreamList], frozen=True, tag="list"):
    """List the streams that the client may use, damaged ones too."""


class DescribeStream(Request[StreamDescription], frozen=True, tag="describe"):
    """Describe a stream. A damaged one fails with its error, unless ``accept_damaged``."""

    stream: str
    accept_damaged: bool = False


class CreateStream(Request[StreamDescription], frozen=True, tag="create"):
    """Create a stream. 0 is no retention of its kind, and the server's own term length."""

    stream: str
    partitions: int
    retention_bytes: int
    retention_seconds: float
    term_bytes: int


class DeleteStream(Request[Done], frozen=True, tag="delete"):
    """Delete a stream with all its rows."""

    stream: str


class PurgeStream(Request[PartitionPositions], frozen=True, tag="purge"):
    """Delete whole segments before a position or a time, of one partition or of all; answers where each begins then."""

    stream: str
    partition: int | None = None
    before_position: int | None = None
    before_time_ns: int | None = None


class PartitionStates(Request[CommittedPartitions], frozen=True, tag="states"):
    """Give how far each partition is committed."""

    stream: str


class FindBoundary(Request[BoundaryFound], frozen=True, tag="boundary"):
    """Find where a range from ``start`` may end; see ``log.api.Boundaries``. ``max_rows`` None: any number."""

    stream: str
    partition: int
    start: int
    limit: int
    end: int
    max_rows: int | None
    framed: bool


class FindPosition(Request[PartitionPositions], frozen=True, tag="position"):
    """Find where what was committed at or after a time, ns since 1970, begins in each partition."""

    stream: str
    time_ns: int


class AwaitCommits(Request[CommitsSeen], frozen=True, tag="await"):
    """Wait until a partition is committed beyond its position of ``ends``, for so long at most."""

    stream: str
    ends: tuple[int, ...]
    seconds: Seconds


class RenewLease(Request[Done], frozen=True, tag="lease"):
    """Keep what lies at and behind ``positions``, by partition, from retention for so long; 0 ends the lease."""

    stream: str
    reader: str
    positions: dict[int, int]
    seconds: Seconds


class StartRead(Request[Done], frozen=True, tag="read"):
    """Send ``[start, end)`` over the bulk link ``link``, as messages of the number ``request``.

    ``epoch`` is that of the byte before ``position``: a stream with another history sends nothing. None: not checked.
    """

    stream: str
    partition: int
    start: int
    end: int
    link: int
    request: int
    epoch: int | None = None
    position: int = 0


class StopRead(Request[Done], frozen=True, tag="stop"):
    """Send no more of a read; what was started after it on the link goes on."""

    link: int
    request: int


class LastTransaction(Request[LastCommitted], frozen=True, tag="last"):
    """Give the last transaction that a producer committed under the writer's id; of any producer for ""."""

    stream: str
    writer: str
    producer: str


class BeginTransaction(Request[Begun], frozen=True, tag="begin"):
    """Begin a transaction, None for whichever comes next, and fence earlier runs.

    ``acknowledged`` is the last transaction that the writer saw committed, -1 for none, with its ``stamp``.
    ``replaced`` is the run with which the same program began before, "" for none.
    """

    stream: str
    writer: str
    run: str
    transaction: int | None
    single_use: bool
    producer: str
    acknowledged: int = -1
    stamp: str = ""
    replaced: str = ""


class FindLostTransaction(Request[LostTransaction], frozen=True, tag="find-lost"):
    """Find the first transaction up to ``acknowledged`` that is not in the stream."""

    stream: str
    writer: str
    acknowledged: int
    stamp: str


class OpenStage(Request[StageOpened], frozen=True, tag="open-stage"):
    """Open a stage that messages of the number ``request`` fill over the bulk link ``link``.

    Sent again with the same two numbers it gives the same stage. ``partition`` None: the server takes the one of the
    task's number, modulo the stream's partitions. ``max_message_bytes`` is what the client wants to stage, 0 for the
    longest message: more than that is refused before anything is opened. The rest is as in BeginTransaction.
    """

    stream: str
    writer: str
    run: str
    transaction: int
    single_use: bool
    producer: str
    partition: int | None
    task: int
    content: str
    schema: bytes
    link: int
    request: int
    max_message_bytes: int = 0
    acknowledged: int = -1
    stamp: str = ""
    replaced: str = ""


class FinishStage(Request[StageFinished], frozen=True, tag="finish-stage"):
    """Close a stage once all its ``size`` bytes have come, for which the server waits so long."""

    stream: str
    stage: str
    size: int
    seconds: Seconds


class CommitTransaction(Request[Committed], frozen=True, tag="commit"):
    """Make the parts visible, all at once. ``rows`` is how many rows the writer has of the transaction.

    The server keeps ``token`` with the producer's last transaction. It waits so long for a commit that is at work.
    """

    stream: str
    writer: str
    run: str
    transaction: int
    producer: str
    parts: tuple[StagedPart, ...]
    rows: int
    seconds: Seconds
    token: str = ""


class CommitEmptyTransaction(Request[Committed], frozen=True, tag="commit-empty"):
    """Commit a transaction without rows. A request of its own: one that lost its parts must not commit."""

    stream: str
    writer: str
    run: str
    transaction: int
    producer: str
    seconds: Seconds
    token: str = ""


class AbortTransaction(Request[Done], frozen=True, tag="abort"):
    """Drop what was staged for a transaction; one that is committed stays."""

    stream: str
    writer: str
    run: str
    transaction: int


AnyRequest = (
    ListStreams | DescribeStream | CreateStream | DeleteStream | PurgeStream | PartitionStates | FindBoundary
    | FindPosition | AwaitCommits | RenewLease | StartRead | StopRead | LastTransaction | BeginTransaction
    | FindLostTransaction | OpenStage | FinishStage | CommitTransaction | CommitEmptyTransaction | AbortTransaction
)  # fmt: skip
AnyAnswer = (
    Failure | Done | StreamDescription | StreamList | CommittedPartitions | PartitionPositions | BoundaryFound
    | CommitsSeen | LastCommitted | Begun | LostTransaction | StageOpened | StageFinished | Committed
)  # fmt: skip

_ENCODER: Final = msgspec.msgpack.Encoder()
# Built while this module is imported, by one thread: msgspec builds what it knows of a class at the class's first use,
# and a second thread in the midst of that crashes the process.
_REQUESTS: Final = msgspec.msgpack.Decoder(AnyRequest)
_ANSWERS: Final = msgspec.msgpack.Decoder(AnyAnswer)


def _answers_of(requests: tuple[type[Request[Any]], ...]) -> dict[type[Request[Any]], type[Answer]]:
    return {request: get_args(vars(request)["__orig_bases__"][0])[0] for request in requests}


ANSWERS: Final = _answers_of(get_args(AnyRequest))  # of each request


def encode_request(request: Request[Any]) -> bytes:
    """Return the bytes of a request. Raises OptionError for a number or text that cannot be sent."""
    try:
        return _ENCODER.encode(request)
    except (OverflowError, TypeError, UnicodeEncodeError) as error:
        raise OptionError(
            f"{type(request).__name__} cannot be sent: {error}",
            remedy="Give numbers of at most 64 bits, and valid text.",
        ) from None


def decode_request(data: bytes) -> AnyRequest:
    """Return the request of these bytes. Raises DataFormatError where they are not one."""
    request: AnyRequest = _decoded(_REQUESTS, data, "a request to the stream service")
    return request


def encode_answer(answer: Answer) -> bytes:
    """Return the bytes of an answer."""
    return _ENCODER.encode(answer)


def failure_of(error: AeronSparkError) -> Failure:
    """Return the answer that tells a client of an error."""
    return Failure(encode_error(error))


def decode_answer(request: Request[A], data: bytes) -> A:
    """Return the answer of these bytes to ``request``.

    Raises the error of a Failure, and DataFormatError where the bytes are not an answer to this request.
    """
    answer: AnyAnswer = _decoded(_ANSWERS, data, "an answer of the stream service")
    if isinstance(answer, Failure):
        raise decode_error(answer.error)
    expected = ANSWERS[type(request)]
    if not isinstance(answer, expected):
        raise DataFormatError(
            f"the stream service answered {type(request).__name__} by {type(answer).__name__}, expected "
            f"{expected.__name__}",
            remedy=_SAME_RELEASE,
        )
    return cast(A, answer)


def _decoded(decoder: msgspec.msgpack.Decoder[Any], data: bytes, what: str) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, TypeError, UnicodeDecodeError, RecursionError) as error:
        raise DataFormatError(f"these bytes are not {what}: {error}", remedy=_SAME_RELEASE) from None


BULK_HEAD: Final = struct.Struct(
    "<"
    "I"  # request
    "B"  # kind
    "3x"
    "q"  # position
)


class BulkMessageKind(IntEnum):
    """What a message on a bulk link is."""

    LOG = 1
    END = 2
    FAILED = 3
    STAGE = 4


class BulkMessage(NamedTuple):
    """A decoded message; ``payload`` is a view of the bytes it came in."""

    request: int
    kind: BulkMessageKind
    position: int
    payload: memoryview


def encode_bulk_head(request: int, kind: BulkMessageKind, position: int) -> bytes:
    """Return everything before the payload."""
    return BULK_HEAD.pack(request & 0xFFFFFFFF, kind, position)


def decode_bulk_message(data: memoryview) -> BulkMessage:
    """Return the message of these bytes. Raises DataFormatError where they are not one."""
    if data.nbytes < BULK_HEAD.size:
        raise _not_a_message(f"it has {data.nbytes} bytes, expected at least {BULK_HEAD.size}")
    request, kind, position = BULK_HEAD.unpack_from(data)
    if kind not in set(BulkMessageKind) or position < 0:
        raise _not_a_message(f"it has kind {kind} and position {position}")
    return BulkMessage(request, BulkMessageKind(kind), position, data[BULK_HEAD.size :])


def _not_a_message(why: str) -> DataFormatError:
    return DataFormatError(f"a message on a bulk link cannot be decoded: {why}", remedy=_SAME_RELEASE)

"""Stages the rows of a transaction or of a task on a server, and begins, commits and aborts transactions.

Each request about a transaction can be repeated after any error: the server commits a transaction once.

A stage is filled over a bulk link. Its rows become visible when a commit names it. A few rows of a task come in the
request that opens their stage, and need no bulk link. The rows of a small transaction have no stage: the commit request
carries them.
"""

from __future__ import annotations

import copy
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.aeron.checksum import crc32
from aeron_spark.endpoint.bulk_links import BulkLink
from aeron_spark.errors import (
    TOO_LONG,
    AeronSparkError,
    ConnectError,
    DataFormatError,
    EndedError,
    OptionError,
    RefusedError,
    SessionLost,
    StillWorking,
    TransportError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.log.writing import RowEncoder, RowSink, Source, values_of
from aeron_spark.stream_client.operations import describe_stream
from aeron_spark.stream_client.row_input import BYTES, WriteBatch
from aeron_spark.stream_client.session import DRAINING, MIN_TIMEOUT_S, RETRY_INTERVAL_S, StreamSession
from aeron_spark.waiting import Deadline
from aeron_spark.wire.bulk_messages import PAYLOAD_OFFSET, BulkMessageKind, message_memory, write_bulk_head
from aeron_spark.wire.chunks import Header, Payload
from aeron_spark.wire.staged_items import MAX_ITEM_BYTES, encode_group_item, encode_values_item
from aeron_spark.wire.stream_requests import (
    AbortTransaction,
    BeginTransaction,
    Begun,
    CommitEmptyTransaction,
    CommitPart,
    CommitT,
    Committed,
    CommitTransaction,
    FindLostTransaction,
    FinishStage,
    InlinePart,
    LastCommitted,
    LastTransaction,
    OpenStage,
    StagedPart,
    StageFinished,
    StageOpened,
    StreamInfo,
    Transaction,
    bounded,
    with_content,
)

COMMIT_TIMEOUT_S: Final = 600.0  # of a large transaction: the server copies it into the stream
ATTEMPT_TIMEOUT_S: Final = 20.0  # then the request is repeated, and the server says whether it still works on it
MIN_ATTEMPTS: Final = 3  # of one request before its deadline
SERVER_SHARE: Final = 0.6  # of an attempt's time that the server may wait; the rest is for the response to arrive
# The request had no response: the server may have done what it requests, or may do it later.
UNANSWERED: Final = (ConnectError, SessionLost, WaitTimeout)


def begin(session: StreamSession, stream: str, transaction: Transaction, *, timeout_s: float | None = None) -> Begun:
    """Begin a transaction and fence earlier runs; return the writer's last committed transaction.

    Raises RefusedError if a later run fenced this one, if another
    producer has committed a transaction with this id, and, with the reason "diverged", if the server was restored from
    a copy without a transaction that it had acknowledged.
    """
    return session.call(BeginTransaction(stream, transaction), timeout=timeout_s)


def commit(session: StreamSession, request: CommitT, deadline: Deadline | None = None) -> Committed:
    """Make the parts of a transaction visible, all at once, or commit a transaction without rows.

    The server refuses parts with another number of rows than the request has. If the request carries rows, the server
    must know the transaction's run: otherwise it has lost the state in which the writer began, and refuses.

    ``deadline`` bounds the server's silence. While the server says that it works on the commit, this waits for up to
    ``request.seconds`` and then raises StillWorking. The server keeps the token with the producer's last transaction,
    see :func:`last_committed`.
    """
    commit_deadline = session.deadline(request.seconds, "the commit to end")
    silence_deadline = commit_deadline if deadline is None else deadline
    while True:
        attempt_s = attempt_timeout(silence_deadline)
        try:
            return session.call(bounded(request, attempt_s * SERVER_SHARE), timeout=attempt_s)
        except StillWorking:
            if session.client.closed or not commit_deadline.remaining():
                raise
            if silence_deadline is not commit_deadline:
                silence_deadline.progress()
        except (*UNANSWERED, RefusedError) as error:
            if isinstance(error, RefusedError) and error.reason != DRAINING:
                raise
            if session.client.closed or not silence_deadline.remaining():
                raise
            session.sleep(min(RETRY_INTERVAL_S, silence_deadline.remaining()))


def attempt_timeout(deadline: Deadline) -> float:
    """Return the seconds for one attempt of a request, so that several attempts fit before the deadline."""
    share_s = min(ATTEMPT_TIMEOUT_S, deadline.seconds / MIN_ATTEMPTS)
    return max(MIN_TIMEOUT_S, min(share_s, deadline.remaining()))


def abort(session: StreamSession, stream: str, transaction: Transaction, *, timeout_s: float | None = None) -> None:
    """Discard the staged rows of a transaction; a committed transaction stays."""
    session.call(AbortTransaction(stream, transaction), timeout=timeout_s)


def last_committed(
    session: StreamSession, stream: str, transaction: Transaction, *, timeout_s: float | None = None
) -> LastCommitted:
    """Return the last transaction of this one's writer and producer that is committed, -1 for none, and its token."""
    return session.call(LastTransaction(stream, transaction.writer, transaction.producer), timeout=timeout_s)


def first_lost(session: StreamSession, stream: str, writer: str, acknowledged: int, stamp: str) -> int | None:
    """Return the writer's first acknowledged transaction that the stream has no longer, or None if it has all."""
    return session.call(FindLostTransaction(stream, writer, acknowledged, stamp)).transaction


# Of one request: with its other fields it fits into one message, whose smallest limit is 128 KiB. A stage over a bulk
# link costs two round trips, in which a network carries about so many bytes.
MAX_INLINE_BYTES: Final = 64 << 10
PART_BYTES: Final = 256  # counted for each part: its other fields take fewer


@dataclass(slots=True)
class InlineRoom:
    """The bytes that one request can still carry, negative if it has too many.

    It is the commit request of a transaction, or the request that stages the rows of a task.
    """

    left: int = MAX_INLINE_BYTES


@dataclass(frozen=True, slots=True)
class InlineRequest:
    """A request that carries rows of a task, while it has room for them.

    ``message_limit`` is the longest message of the stream, in bytes. The request is one that opens a stage, or the
    commit request.
    """

    room: InlineRoom
    message_limit: int
    opens_stage: bool = False


class InlineSink:
    """Collects the items of one task's rows. Implements ``RowSink``. Copies them: the caller may reuse its memory."""

    def __init__(self, room: InlineRoom) -> None:
        self.items = bytearray()
        self._room = room
        self.count(PART_BYTES)

    @property
    def has_too_many(self) -> bool:
        """Whether the request cannot carry all the rows."""
        return self._room.left < 0

    def has_room(self, size: int) -> bool:
        """Whether rows of ``size`` bytes may fit; their items are larger."""
        return size <= self._room.left

    def count(self, size: int) -> None:
        """Count ``size`` bytes that the request carries besides the items."""
        self._room.left -= size

    def put_values(self, values: pa.Array[Any], reserved: pa.Array[Any] | None) -> None:
        """Take values that become one message each."""
        self._put(encode_values_item(values, reserved))

    def put_group(self, header: Header, payload: Payload | Sequence[pa.Buffer], reserved: int) -> None:
        """Take a group; ``reserved`` is not sent."""
        self._put(encode_group_item(header, payload))

    def truncate(self, size: int) -> None:
        """Keep the first ``size`` bytes of the items only."""
        self._room.left += len(self.items) - size
        del self.items[size:]

    def part(self, stage: OpenStage, rows: int) -> InlinePart:
        """Return the part of the commit request, for the stage that is not opened."""
        items = bytes(self.items)
        return InlinePart(stage.partition, stage.task, stage.content, stage.schema, rows, items, crc32(items))

    def _put(self, buffers: Iterable[pa.Buffer]) -> None:
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            self.items += view
            self._room.left -= view.nbytes


MAX_SCHEMAS: Final = 8  # that are remembered; a program that alternates between more stages its rows


class KnownStream:
    """A stream as its server described it. For one thread.

    The number of partitions and the content never change after the first rows. Until then, and after :meth:`forget`,
    each call of :meth:`describe` requests them.
    """

    def __init__(self, session: StreamSession, stream: str, found: StreamInfo | None = None) -> None:
        self.name = stream
        self._session = session
        self._found = found
        self._accepted: list[pa.Schema] = []  # of committed rows; the stream's own schema can have more columns

    def describe(self, timeout_s: float) -> StreamInfo:
        """Return the stream's description. Raises as :func:`describe_stream`."""
        if self._found is None or not self._found.content:
            self._found = describe_stream(self._session, self.name, timeout_s=timeout_s)
        return self._found

    def forget(self) -> None:
        """Request the description again: the stream may have been restored, or created again under this name."""
        self._found = None
        self._accepted.clear()

    def takes(self, payload: str, schema: pa.Schema | None) -> bool:
        """Whether the stream has rows of this payload and schema, so that the server has no reason to refuse them."""
        found = self._found
        if found is None or found.content != payload:
            return False
        return schema is None or schema == found.schema or schema in self._accepted

    def note_committed(self, payload: str, schema: pa.Schema | None) -> None:
        """Note that the server committed rows of this payload and schema (None: rows without one)."""
        if self._found is not None and not self._found.content:
            self._found = with_content(self._found, payload)
        if schema is not None and schema not in self._accepted:
            self._accepted = [*self._accepted[1 - MAX_SCHEMAS :], schema]


def check_partition(stream: str, partition: int, partitions: int) -> None:
    """Raise OptionError if the stream does not have the partition."""
    if not 0 <= partition < partitions:
        raise OptionError(
            f"stream {stream!r} has no partition {partition}",
            remedy=f"It has {partitions}, numbered from 0.",
            reason="no-partition",
        )


SEND_TIMEOUT_S: Final = 60.0  # for a message that Aeron does not take; then the server is stuck
STAGE_AGAIN: Final = "Stage the rows again."


class AppenderState(Enum):
    """The state of a ``ServerAppender``."""

    OPEN = "open"  # it takes rows
    CLOSING = "closing"  # it takes no more rows; the server has not confirmed yet that it has all of them
    FINISHED = "finished"  # its parts are known and do not change
    FAILED = "failed"  # another appender has to stage the rows again


class ServerAppender:
    """Stages the rows of one task in one partition of a stream; see :class:`aeron_spark.log.writing.Appender`.

    ``opening`` opens the stage; the appender adds the schema of the rows, and how they are sent. Rows are numbered from
    0. A commit makes them visible. ``deadline`` bounds every wait: each message that Aeron takes, and each response,
    extends it. A caller that shares one deadline over several appenders extends it before each operation. Without one,
    each operation has ``SEND_TIMEOUT_S``.

    With ``inline`` no stage is opened while this one request can carry the rows. If it is the commit request, the parts
    have the rows, and the caller begins the transaction's run before. If it opens a stage, :meth:`finish` sends it;
    then an error of these rows, and that the transaction is committed, are known after :meth:`finish` only.
    """

    def __init__(
        self,
        session: StreamSession,
        opening: OpenStage,
        source: Source,
        *,
        clock: Callable[[], int] = time.time_ns,
        deadline: Deadline | None = None,
        inline: InlineRequest | None = None,
    ) -> None:
        self.committed = False  # whether the server had committed the transaction before; then rows are dropped
        self._session = session
        self._opening = opening
        self._encoder = RowEncoder(source, clock=clock)
        self._shares_deadline = deadline is not None
        self._deadline = deadline or session.deadline(SEND_TIMEOUT_S, f"the server of stream {opening.stream!r}")
        self._inline = None if inline is None else InlineSink(inline.room)  # None: the rows are in a stage
        self._stages_at_once = inline is not None and inline.opens_stage
        # Bytes of a message; 0 if they are not known before the stage is open.
        self._limit = opening.max_message_bytes or (0 if inline is None else inline.message_limit)
        self._state = AppenderState.OPEN
        self._stage: _Stage | None = None
        self._parts: list[CommitPart] = []
        self._error: AeronSparkError | None = None

    @property
    def rows(self) -> int:
        """The number of rows appended so far, dropped ones included."""
        return self._encoder.rows

    @property
    def state(self) -> AppenderState:
        """Whether it takes rows, and whether its parts are known."""
        return self._state

    def append(self, batch: pa.RecordBatch) -> None:
        """Stage the rows of a batch as the payload says; see :meth:`aeron_spark.log.writing.Appender.append`."""
        if self._opening.content == "arrow":
            self.arrow(batch)
        elif self._opening.content == "framed":
            self.framed(*values_of(batch))
        else:
            self.raw(*values_of(batch))

    def raw(self, values: pa.Array[Any], reserved: pa.Array[Any] | None = None) -> None:
        """Stage each value as one message, its bytes unchanged."""
        with self._appending(None, values.nbytes) as stage:
            if stage is None:
                self._encoder.rows += len(values)
            else:
                self._check_values(values)
                self._encoder.raw(values, reserved, stage)

    def framed(self, values: pa.Array[Any], reserved: pa.Array[Any] | None = None) -> None:
        """Stage each value in the wire format; a value can have any size."""
        with self._appending(None, values.nbytes) as stage:
            if stage is None:
                self._encoder.rows += len(values)
            else:
                self._encoder.framed(values, reserved, stage, self._limit)

    def arrow(self, batch: pa.RecordBatch) -> None:
        """Stage the rows of a batch as Arrow, divided into groups that fit into a message; a longer row is whole."""
        with self._appending(batch.schema, batch.nbytes) as stage:
            if stage is None:
                self._encoder.rows += batch.num_rows
            else:
                self._encoder.arrow(batch, stage, self._limit)

    def finish(self) -> list[CommitPart]:
        """Wait until the server has all staged rows; return the parts of a commit, none if no row was appended.

        Can be called again, and returns the same parts then. If the rows are lost, each call raises the same error.
        If only the response is missing (ConnectError, SessionLost, WaitTimeout), the next call repeats the request.
        """
        self._extend_deadline()
        if self._state is AppenderState.FAILED:
            raise self._failure()
        if self._state is AppenderState.FINISHED:
            return list(self._parts)
        self._state = AppenderState.CLOSING
        try:
            parts = self._finished_parts()
        except _NoResponse as missing:
            raise missing.error from None
        except BaseException as error:
            self._fail(error)
            raise
        self._state, self._parts = AppenderState.FINISHED, parts
        self._deadline.progress()
        return list(parts)

    def discard(self) -> None:
        """Discard the staged rows unless they are finished."""
        if self._state in (AppenderState.OPEN, AppenderState.CLOSING):
            self._fail(UsageError("the staged rows were discarded", remedy=STAGE_AGAIN))

    def _finished_parts(self) -> list[CommitPart]:
        if self._inline is not None and self._inline.items:
            part = self._inline.part(self._opening, self.rows)
            return self._staged_at_once(part) if self._stages_at_once else [part]
        return [] if self._stage is None else [self._stage.finish(self.rows, self._deadline)]

    def _staged_at_once(self, rows: InlinePart) -> list[CommitPart]:
        """Return the stage into which the server has put these rows; none if the transaction is committed already.

        Raises _NoResponse if the server may have opened the stage. A repetition opens another one, and the commit names
        that one: only stages that it names become visible, and it removes the others of the transaction.
        """
        try:
            opened = self._session.call(self._opening.with_rows(rows), timeout=self._deadline.remaining())
        except UNANSWERED as error:
            raise _NoResponse(error) from error
        self.committed = not opened.stage
        return [] if self.committed else [StagedPart(opened.stage, rows.rows, len(rows.items), rows.crc)]

    @contextmanager
    def _appending(self, schema: pa.Schema | None, size: int) -> Iterator[RowSink | None]:
        """Yield the sink for more rows of ``size`` bytes, or None if the transaction is committed already.

        An error in the block fails the appender, unless no byte was sent before it.
        """
        self._extend_deadline()
        if self._state is AppenderState.FAILED:
            raise self._failure()
        if self._state is not AppenderState.OPEN:
            raise UsageError("a finished stage takes no more rows", remedy="Open another one.")
        if schema is not None and not self._opening.schema:
            self._opening = self._opening.with_schema(bytes(schema.serialize()))
            if self._inline is not None:
                self._inline.count(len(self._opening.schema))
        if self._inline is not None and self._inline.has_room(size):
            with self._appending_inline(self._inline) as inline:
                yield inline
            return
        stage = self._open()
        bytes_before = 0 if stage is None else stage.bytes
        try:
            yield stage
        except BaseException as error:
            if stage is not None and (stage.is_broken or stage.bytes != bytes_before):
                self._fail(error)
            raise

    @contextmanager
    def _appending_inline(self, inline: InlineSink) -> Iterator[InlineSink]:
        """Yield ``inline`` for more rows; move them to a stage if they are too many. All of them are added, or none."""
        rows, size = self.rows, len(inline.items)
        try:
            yield inline
            if inline.has_too_many:
                self._open()
        except BaseException:
            self._encoder.rows = rows
            if self._inline is not None:
                inline.truncate(size)
            raise

    def _fail(self, error: BaseException) -> None:
        stage, self._stage, self._inline, self._state = self._stage, None, None, AppenderState.FAILED
        self._error = staging_error(error)
        self._session.message_limits.pop(self._opening.stream, None)
        if stage is not None:
            stage.discard()

    def _failure(self) -> AeronSparkError:
        assert self._error is not None
        return copy.copy(self._error)

    def _extend_deadline(self) -> None:
        if not self._shares_deadline:
            self._deadline.progress()

    def _open(self) -> _Stage | None:
        """Return the stage, which is opened if there is none; None if the transaction is committed already."""
        if self._stage is None and not self.committed:
            opened, self._stage = _Stage.open(self._session, self._opening, self._deadline)
            self.committed = self._stage is None
            self._limit = self._opening.max_message_bytes or opened.max_message_bytes
            self._session.message_limits[self._opening.stream] = opened.max_message_bytes
            self._deadline.progress()
            self._move_to_stage()
        return self._stage

    def _move_to_stage(self) -> None:
        inline, self._inline = self._inline, None
        if inline is None or self._stage is None:
            return
        items = bytes(inline.items)
        inline.truncate(0)
        try:
            self._stage.put_items(items)
        except BaseException as error:
            self._fail(error)
            raise

    def _check_values(self, values: pa.Array[Any]) -> None:
        lengths: Any = pc.binary_length(values)  # type: ignore[call-overload]  # stubs know no Array[Any]
        longest = pc.max(lengths).as_py() or 0
        if longest > self._limit:
            raise DataFormatError(
                f"a value has {longest} bytes, and the longest message of stream {self._opening.stream!r} has "
                f"{self._limit}",
                remedy="Write with payload=framed, which sends it in chunks.",
                reason=TOO_LONG,
            )


class _NoResponse(Exception):
    """A request that can be repeated had no response; ``error`` has the reason."""

    def __init__(self, error: AeronSparkError) -> None:
        super().__init__(error)
        self.error = error


class _Stage:
    """A stage on the server, filled over a bulk link. Implements ``RowSink``."""

    def __init__(
        self,
        session: StreamSession,
        request: OpenStage,
        stage_id: str,
        borrowed: AbstractContextManager[BulkLink],
        link: BulkLink,
        deadline: Deadline,
    ) -> None:
        self.bytes = 0  # of all items
        self.is_broken = False  # whether Aeron may have taken a message whose sending failed
        self._session = session
        self._stream = request.stream
        self._id = stage_id
        self._request = request.request
        self._borrowed = borrowed
        self._link = link
        self._deadline = deadline
        self._sent_bytes = 0
        self._crc = 0
        # The next message: each item is copied to it once, and it is encrypted from there.
        self._message = message_memory(link.room)
        self._end = PAYLOAD_OFFSET

    @classmethod
    def open(cls, session: StreamSession, opening: OpenStage, deadline: Deadline) -> tuple[StageOpened, _Stage | None]:
        """Open a stage; return the server's response, and the stage, or None if the transaction is committed already.

        A reconnection ends all bulk links, so that a repeated request can name a link that the server does not know. No
        row was sent over it: another link takes its place until the deadline. Raises the EndedError then.
        """
        while True:
            borrowed = session.bulk_link(deadline.remaining())
            link = borrowed.__enter__()
            try:
                request = opening.over(link.number, session.request_number())
                opened = session.call(request, timeout=deadline.remaining())
            except BaseException as error:
                link.close()
                borrowed.__exit__(None, None, None)
                if not isinstance(error, EndedError) or session.client.closed or not deadline.remaining():
                    raise
                session.sleep(min(RETRY_INTERVAL_S, deadline.remaining()))
                continue
            if not opened.stage:
                borrowed.__exit__(None, None, None)
                return opened, None
            return opened, cls(session, request, opened.stage, borrowed, link, deadline)

    def put_values(self, values: pa.Array[Any], reserved: pa.Array[Any] | None) -> None:
        """Send values that become one message each."""
        size: Any = values.nbytes
        slices = max(1, -(-size // (MAX_ITEM_BYTES // 2)))  # an item has a limit
        step = max(1, len(values) // slices)
        for first in range(0, len(values), step):
            part = values.slice(first, step)
            self._put(encode_values_item(part, None if reserved is None else reserved.slice(first, step)))

    def put_group(self, header: Header, payload: Payload | Sequence[pa.Buffer], reserved: int) -> None:
        """Send a group. ``reserved`` is not staged."""
        self._put(encode_group_item(header, payload))

    def put_items(self, items: bytes) -> None:
        """Send encoded items."""
        self._put([pa.py_buffer(items)])

    def _put(self, buffers: Iterable[pa.Buffer]) -> None:
        """Append an item to the messages: small items share a message, a large item takes several.

        The buffers are copied; the caller may change them afterwards.
        """
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            self.bytes += view.nbytes
            while view.nbytes:
                part = view[: self._message.nbytes - self._end]
                begin, self._end = self._end, self._end + part.nbytes
                self._message[begin : self._end] = part
                view = view[part.nbytes :]
                if self._end == self._message.nbytes:
                    self._send()

    def finish(self, rows: int, deadline: Deadline) -> StagedPart:
        """Send the last message and finish the stage on the server.

        Raises TransportError if the server staged something else, and _NoResponse if only the response is missing;
        then the next call repeats the request.
        """
        if self._end > PAYLOAD_OFFSET:
            self._send()
        found = self._finish_on_server(deadline)
        if found != StageFinished(rows, self._sent_bytes, self._crc):
            raise TransportError(
                f"the server staged {found.rows} rows in {found.size} bytes, and {rows} rows in {self._sent_bytes} "
                "bytes were sent",
                remedy=STAGE_AGAIN,
            )
        self._borrowed.__exit__(None, None, None)
        return StagedPart(self._id, rows, self._sent_bytes, self._crc)

    def discard(self) -> None:
        """Close the bulk link; the server then discards the unfinished stages that were filled over it."""
        self._link.close()
        self._borrowed.__exit__(None, None, None)

    def _finish_on_server(self, deadline: Deadline) -> StageFinished:
        while True:
            attempt_s = attempt_timeout(deadline)
            try:
                return self._session.call(
                    FinishStage(self._stream, self._id, self._sent_bytes, attempt_s * SERVER_SHARE), timeout=attempt_s
                )
            except UNANSWERED as error:
                if self._session.client.closed or not deadline.remaining():
                    raise _NoResponse(error) from error
                self._session.sleep(min(RETRY_INTERVAL_S, deadline.remaining()))

    def _send(self) -> None:
        # If this raises, Aeron may have taken the message, or may take it later: it cannot be sent again.
        self.is_broken = True
        timeout_s = max(MIN_TIMEOUT_S, self._deadline.remaining())
        message, self._end = self._message[: self._end], PAYLOAD_OFFSET
        write_bulk_head(message, self._request, BulkMessageKind.STAGE, self._sent_bytes)
        self._crc = crc32(message[PAYLOAD_OFFSET:], self._crc)
        self._sent_bytes += message.nbytes - PAYLOAD_OFFSET
        self._link.send_from(message, timeout=timeout_s)
        self.is_broken = False
        self._deadline.progress()


def staging_error(error: BaseException) -> AeronSparkError:
    """Return the error by which staging failed; an interruption becomes a TransportError."""
    if isinstance(error, AeronSparkError):
        return error
    return TransportError(f"staging rows was interrupted: {error!r}", remedy=STAGE_AGAIN)


@dataclass(frozen=True, slots=True)
class _OpenAppender:
    """The appender that takes a partition's next rows, and the rows that it can take."""

    appender: ServerAppender
    payload: str
    schema: pa.Schema | None


class StagedTransaction:
    """Stages the batches of one transaction, in stages of several partitions, and commits them.

    Within a partition, rows keep the order in which they were appended. ``deadline`` bounds every wait; the caller
    extends it before each operation. If ``error`` is set, rows are lost, and a new object must stage all rows again.

    If the server knows the transaction's run (``has_begun``), it opens no stages for a few rows of a schema that the
    stream has: the commit request carries them. Then an error of these rows comes with the commit.
    """

    def __init__(
        self,
        session: StreamSession,
        known: KnownStream,
        transaction: Transaction,
        deadline: Deadline,
        *,
        has_begun: bool,
        evolve_schema: bool = False,
    ) -> None:
        self.transaction = transaction
        self._evolve_schema = evolve_schema
        self.rows = 0  # appended so far
        self.error: AeronSparkError | None = None
        self.stamp = ""  # of the transaction, when commit() has returned
        self._session = session
        self._known = known
        self._stream = known.name
        self._room = InlineRoom() if has_begun else None
        self._deadline = deadline
        self._appenders: list[ServerAppender] = []
        self._open: dict[int, _OpenAppender] = {}  # by partition
        self._written: list[tuple[str, pa.Schema | None]] = []  # payload and schema of each appender

    @property
    def committed(self) -> bool:
        """Whether the server had committed the transaction before the first stage was opened; then rows are dropped."""
        return any(appender.committed for appender in self._appenders)

    def append(self, batch: WriteBatch) -> None:
        """Stage all rows of a batch. After an error, either none of them is staged or ``error`` is set."""
        self._refuse_broken()
        found = self._known.describe(self._deadline.remaining())
        partitions = len(found.partitions)
        partition = self._default_partition(partitions) if batch.partition is None else batch.partition
        check_partition(self._stream, partition, partitions)
        bytes_payload = "raw" if found.content == "raw" else "framed"
        payload = bytes_payload if batch.payload == BYTES else batch.payload
        appender = self._appender(
            partition, payload, batch.rows.schema if payload == "arrow" else None, found.max_message_bytes
        )
        rows_before = appender.rows
        try:
            appender.append(batch.rows)
            self.rows += batch.rows.num_rows
        except BaseException as error:
            if appender.state is AppenderState.FAILED or appender.rows != rows_before:
                self.fail(error)
            raise

    def finish(self) -> list[CommitPart]:
        """Wait until the server has all staged rows; return the parts of the commit. Can be repeated after an error.

        Raises TransportError, and sets ``error``, if the parts have another number of rows than was appended.
        """
        self._refuse_broken()
        try:
            parts = [part for appender in self._appenders for part in appender.finish()]
            staged_rows = sum(part.rows for part in parts)
            if staged_rows != self.rows and not self.committed:
                raise TransportError(
                    f"{staged_rows} of {self.rows} rows of transaction {self.transaction.number} are staged",
                    remedy=STAGE_AGAIN,
                )
        except BaseException as error:
            has_failed = any(appender.state is AppenderState.FAILED for appender in self._appenders)
            if has_failed or isinstance(error, TransportError):
                self.fail(error)
            raise
        return parts

    def commit(self, token: str = "") -> bool:
        """Make all rows visible; return whether an earlier request did. Can be repeated after an error.

        The server keeps ``token`` with the transaction, which can be without rows.
        """
        parts = self.finish()
        try:
            if self.rows:
                begun, evolves = self.transaction.of_known_run(), self._evolve_schema
                rows = CommitTransaction(self._stream, begun, tuple(parts), self.rows, COMMIT_TIMEOUT_S, token, evolves)
                result = commit(self._session, rows, self._deadline)
            else:  # no stage was opened, which begins the transaction, too, and says if the writer id is used once
                begin(self._session, self._stream, self.transaction, timeout_s=self._deadline.remaining())
                empty = CommitEmptyTransaction(self._stream, self.transaction, COMMIT_TIMEOUT_S, token)
                result = commit(self._session, empty, self._deadline)
        except SessionLost:
            raise
        except RefusedError as error:  # for example, a stage has expired
            self.fail(error)
            raise
        self.stamp = result.stamp
        for payload, schema in self._written:
            self._known.note_committed(payload, schema)
        return result.repeated

    def fail(self, error: BaseException) -> AeronSparkError:
        """Record that the stages do not have the rows of the transaction; return the first error that was recorded."""
        if self.error is None:
            self.error = staging_error(error)
            self._known.forget()
        return self.error

    def discard(self) -> None:
        """Give up the stages. The server discards them when the transaction is aborted, or when they expire."""
        self.fail(UsageError("the staged rows were discarded", remedy=STAGE_AGAIN))
        for appender in self._appenders:
            appender.discard()

    def abort(self, timeout_s: float) -> bool:
        """Discard the staged rows; return whether the server confirmed it in time.

        A server that does not respond discards them later.
        """
        self.discard()
        try:
            abort(self._session, self._stream, self.transaction, timeout_s=timeout_s)
        except AeronSparkError:
            return False
        return True

    def _appender(
        self, partition: int, payload: str, schema: pa.Schema | None, max_message_bytes: int
    ) -> ServerAppender:
        """Return the appender of a partition. A stage has one schema: for another schema, the next stage begins."""
        found = self._open.get(partition)
        if found is not None:
            matches = found.payload == payload and found.schema == schema
            if matches and found.appender.state is AppenderState.OPEN:
                return found.appender
            try:
                found.appender.finish()
            except BaseException as error:
                if found.appender.state is AppenderState.FAILED:
                    self.fail(error)
                raise
        transaction, task = self.transaction, len(self._appenders)
        inline = None
        if self._room is not None and self._known.takes(payload, schema):
            inline = InlineRequest(self._room, max_message_bytes)
        appender = ServerAppender(
            self._session,
            OpenStage(self._stream, transaction, partition, task, payload, evolve_schema=self._evolve_schema),
            Source(transaction.writer, transaction.number, task),
            deadline=self._deadline,
            inline=inline,
        )
        self._appenders.append(appender)
        self._written.append((payload, schema))
        self._open[partition] = _OpenAppender(appender, payload, schema)
        return appender

    def _refuse_broken(self) -> None:
        if self.error is not None:
            raise copy.copy(self.error)

    def _default_partition(self, partitions: int) -> int:
        """The partition of rows that name none: a writer's transactions take turns, each writer begins at its hash."""
        return (zlib.crc32(self.transaction.writer.encode()) + self.transaction.number) % partitions

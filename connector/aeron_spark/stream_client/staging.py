"""Staging the rows of one task on a server. ``stream_client.staged_transaction`` has those of a whole transaction.

A stage is filled over a bulk link. Its rows become visible when a commit names it; see ``stream_client.transactions``.
A few rows of a task come in the request that opens their stage, and need no bulk link. The rows of a small transaction
have no stage: the commit request carries them.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.aeron.checksum import crc32
from aeron_spark.connection.bulk_links import BulkLink
from aeron_spark.errors import (
    TOO_LONG,
    AeronSparkError,
    DataFormatError,
    EndedError,
    TransportError,
    UsageError,
)
from aeron_spark.log.writing import RowEncoder, RowSink, Source, values_of
from aeron_spark.stream_client.inline_rows import InlineRequest, InlineRows
from aeron_spark.stream_client.session import MIN_TIMEOUT_S, RETRY_INTERVAL_S, StreamSession
from aeron_spark.stream_client.transactions import (
    SERVER_SHARE,
    UNANSWERED,
    attempt_timeout,
)
from aeron_spark.waiting import Deadline
from aeron_spark.wire.chunk import Header, Payload
from aeron_spark.wire.staged_items import MAX_ITEM_BYTES, encode_group_item, encode_values_item
from aeron_spark.wire.stream_rpc import (
    BULK_HEAD,
    PAYLOAD_OFFSET,
    BulkMessageKind,
    CommitPart,
    FinishStage,
    InlinePart,
    OpenStage,
    StagedPart,
    StageFinished,
    StageOpened,
    Transaction,
    encode_bulk_head,
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
    """Stages the rows of one task in one partition of ``stream``; see :class:`aeron_spark.log.writing.Appender`.

    Without ``partition`` the server takes the task's number modulo the number of partitions. Rows are numbered from 0.
    A commit makes them visible. With ``evolve_schema`` they may add columns to a strict schema. ``deadline`` bounds
    every wait: each message that Aeron takes, and each response, extends it. A caller that shares one deadline over
    several appenders extends it before each operation. Without one, each operation has ``SEND_TIMEOUT_S``.

    With ``inline`` no stage is opened while this one request can carry the rows. If it is the commit request, the parts
    have the rows, and the caller begins the transaction's run before. If it opens a stage, :meth:`finish` sends it;
    then an error of these rows, and that the transaction is committed, are known after :meth:`finish` only.
    """

    def __init__(
        self, session: StreamSession, stream: str, transaction: Transaction, *, task: int, source: Source, payload: str,
        partition: int | None = None, max_message_bytes: int | None = None, clock: Callable[[], int] = time.time_ns,
        deadline: Deadline | None = None, evolve_schema: bool = False,
        inline: InlineRequest | None = None,
    ) -> None:  # fmt: skip
        self.committed = False  # whether the server had committed the transaction before; then rows are dropped
        self._session = session
        self._stream = stream
        self._transaction = transaction
        self._task = task
        self._partition = partition
        self._payload = payload
        self._max_message_bytes = max_message_bytes  # as the option says
        self._evolve_schema = evolve_schema
        self._encoder = RowEncoder(source, clock=clock)
        self._shares_deadline = deadline is not None
        self._deadline = deadline or session.deadline(SEND_TIMEOUT_S, f"the server of stream {stream!r}")
        self._inline = None if inline is None else InlineRows(inline.room)  # None: the rows are in a stage
        self._stages_at_once = inline is not None and inline.opens_stage
        # Bytes of a message; 0 if they are not known before the stage is open.
        self._limit = max_message_bytes or (0 if inline is None else inline.message_limit)
        self._state = AppenderState.OPEN
        self._schema = b""
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
        if self._payload == "arrow":
            self.arrow(batch)
        elif self._payload == "framed":
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
            part = self._inline.part(self._partition, self._task, self._payload, self._schema, self.rows)
            return self._staged_at_once(part) if self._stages_at_once else [part]
        return [] if self._stage is None else [self._stage.finish(self.rows, self._deadline)]

    def _staged_at_once(self, rows: InlinePart) -> list[CommitPart]:
        """Return the stage into which the server has put these rows; none if the transaction is committed already.

        Raises _NoResponse if the server may have opened the stage. A repetition opens another one, and the commit names
        that one: only stages that it names become visible, and it removes the others of the transaction.
        """
        try:
            opened = self._session.call(self._request(rows=rows), timeout=self._deadline.remaining())
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
        if schema is not None and not self._schema:
            self._schema = bytes(schema.serialize())
            if self._inline is not None:
                self._inline.count(len(self._schema))
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
    def _appending_inline(self, inline: InlineRows) -> Iterator[InlineRows]:
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
        self._session.message_limits.pop(self._stream, None)
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
            opened, self._stage = _Stage.open(self._session, self._request, self._deadline)
            self.committed = self._stage is None
            self._limit = self._max_message_bytes or opened.max_message_bytes
            self._session.message_limits[self._stream] = opened.max_message_bytes
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

    def _request(self, link: int = 0, number: int = 0, rows: InlinePart | None = None) -> OpenStage:
        return OpenStage(
            self._stream, self._transaction, self._partition, self._task, self._payload, self._schema, link, number,
            max_message_bytes=self._max_message_bytes or 0, evolve_schema=self._evolve_schema,
            items=b"" if rows is None else rows.items, rows=0 if rows is None else rows.rows,
            crc=0 if rows is None else rows.crc,
        )  # fmt: skip

    def _check_values(self, values: pa.Array[Any]) -> None:
        lengths: Any = pc.binary_length(values)  # type: ignore[call-overload]  # stubs know no Array[Any]
        longest = pc.max(lengths).as_py() or 0
        if longest > self._limit:
            raise DataFormatError(
                f"a value has {longest} bytes, and the longest message of stream {self._stream!r} has {self._limit}",
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
        self, session: StreamSession, request: OpenStage, stage_id: str, borrowed: AbstractContextManager[BulkLink],
        link: BulkLink, deadline: Deadline,
    ) -> None:  # fmt: skip
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
        self._message = memoryview(bytearray(PAYLOAD_OFFSET + link.room - BULK_HEAD.size))
        self._end = PAYLOAD_OFFSET

    @classmethod
    def open(
        cls, session: StreamSession, make_request: Callable[[int, int], OpenStage], deadline: Deadline
    ) -> tuple[StageOpened, _Stage | None]:
        """Open a stage; return the server's response, and the stage, or None if the transaction is committed already.

        ``make_request`` takes the numbers of a bulk link and of the stage's messages. A reconnection ends all bulk
        links, so that a repeated request can name a link that the server does not know. No row was sent over it:
        another link takes its place until the deadline. Raises the EndedError then.
        """
        while True:
            borrowed = session.bulk_link(deadline.remaining())
            link = borrowed.__enter__()
            try:
                request = make_request(link.number, session.request_number())
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
        head = encode_bulk_head(self._request, BulkMessageKind.STAGE, self._sent_bytes)
        message[PAYLOAD_OFFSET - BULK_HEAD.size : PAYLOAD_OFFSET] = head
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

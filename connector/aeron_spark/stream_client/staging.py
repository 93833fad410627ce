"""Staging rows on a server: the stage of one task, and the stages of one transaction of a program.

A stage is filled over a bulk link. Its rows become visible when a commit names it; see ``stream_client.transactions``.
"""

from __future__ import annotations

import copy
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.aeron.checksum import crc32
from aeron_spark.connection.bulk_links import BulkLink
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    DataFormatError,
    EndedError,
    OptionError,
    RefusedError,
    SessionLost,
    TransportError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.log.writing import RowEncoder, Source, Transaction, values_of
from aeron_spark.stream_client.admin import describe_stream
from aeron_spark.stream_client.session import MIN_TIMEOUT_S, RETRY_INTERVAL_S, StreamSession
from aeron_spark.stream_client.transactions import (
    SERVER_SHARE,
    UNANSWERED,
    abort,
    attempt_timeout,
    begin,
    commit,
    commit_empty,
)
from aeron_spark.stream_client.write_batches import BYTES, WriteBatch
from aeron_spark.waiting import Deadline
from aeron_spark.wire.chunk import Header, Payload
from aeron_spark.wire.staged_items import MAX_ITEM_BYTES, encode_group_item, encode_values_item
from aeron_spark.wire.stream_rpc import (
    BULK_HEAD,
    BulkMessageKind,
    FinishStage,
    OpenStage,
    StagedPart,
    StageFinished,
    StageOpened,
    encode_bulk_head,
)

SEND_TIMEOUT_S: Final = 60.0  # for a message that Aeron does not take; then the server is stuck
STAGE_AGAIN: Final = "Stage the rows again."
# The same request can succeed later: the server or the connection was lost.
OUTAGE: Final = (ConnectError, EndedError, SessionLost, TransportError, WaitTimeout)


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
    """

    def __init__(
        self, session: StreamSession, stream: str, transaction: Transaction, *, task: int, source: Source, payload: str,
        partition: int | None = None, max_message_bytes: int | None = None, clock: Callable[[], int] = time.time_ns,
        deadline: Deadline | None = None, evolve_schema: bool = False,
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
        self._limit = 0  # bytes of a message, known when the stage is open
        self._state = AppenderState.OPEN
        self._stage: _Stage | None = None
        self._parts: list[StagedPart] = []
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
        with self._appending(None) as stage:
            if stage is None:
                self._encoder.rows += len(values)
            else:
                self._check_values(values)
                self._encoder.raw(values, reserved, stage)

    def framed(self, values: pa.Array[Any], reserved: pa.Array[Any] | None = None) -> None:
        """Stage each value in the wire format; a value can have any size."""
        with self._appending(None) as stage:
            if stage is None:
                self._encoder.rows += len(values)
            else:
                self._encoder.framed(values, reserved, stage, self._limit)

    def arrow(self, batch: pa.RecordBatch) -> None:
        """Stage the rows of a batch as Arrow, divided into groups that fit into a message; a longer row is whole."""
        with self._appending(batch.schema) as stage:
            if stage is None:
                self._encoder.rows += batch.num_rows
            else:
                self._encoder.arrow(batch, stage, self._limit)

    def finish(self) -> list[StagedPart]:
        """Wait until the server has all rows; return the parts that a commit names, none if no row was staged.

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
            parts = [] if self._stage is None else [self._stage.finish(self.rows, self._deadline)]
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

    @contextmanager
    def _appending(self, schema: pa.Schema | None) -> Iterator[_Stage | None]:
        """Yield the stage for more rows, or None if the transaction is committed already.

        An error in the block fails the appender, unless no byte was sent before it.
        """
        self._extend_deadline()
        if self._state is AppenderState.FAILED:
            raise self._failure()
        if self._state is not AppenderState.OPEN:
            raise UsageError("a finished stage takes no more rows", remedy="Open another one.")
        stage = self._open(schema)
        bytes_before = 0 if stage is None else stage.bytes
        try:
            yield stage
        except BaseException as error:
            if stage is not None and (stage.is_broken or stage.bytes != bytes_before):
                self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        stage, self._stage, self._state = self._stage, None, AppenderState.FAILED
        self._error = _staging_error(error)
        if stage is not None:
            stage.discard()

    def _failure(self) -> AeronSparkError:
        assert self._error is not None
        return copy.copy(self._error)

    def _extend_deadline(self) -> None:
        if not self._shares_deadline:
            self._deadline.progress()

    def _open(self, schema: pa.Schema | None) -> _Stage | None:
        if self._stage is None and not self.committed:
            opened, self._stage = _Stage.open(self._session, partial(self._request, schema), self._deadline)
            self.committed = self._stage is None
            self._limit = self._max_message_bytes or opened.max_message_bytes
            self._deadline.progress()
        return self._stage

    def _request(self, schema: pa.Schema | None, link: int, number: int) -> OpenStage:
        transaction = self._transaction
        return OpenStage(
            stream=self._stream, writer=transaction.writer, run=transaction.run, transaction=transaction.id,
            single_use=transaction.single_use, producer=transaction.producer, partition=self._partition,
            task=self._task, content=self._payload, schema=b"" if schema is None else bytes(schema.serialize()),
            link=link, request=number, max_message_bytes=self._max_message_bytes or 0,
            acknowledged=transaction.acknowledged, stamp=transaction.stamp, replaced=transaction.replaced_run,
            evolve_schema=self._evolve_schema,
        )  # fmt: skip

    def _check_values(self, values: pa.Array[Any]) -> None:
        lengths: Any = pc.binary_length(values)  # type: ignore[call-overload]  # stubs know no Array[Any]
        longest = pc.max(lengths).as_py() or 0
        if longest > self._limit:
            raise DataFormatError(
                f"a value has {longest} bytes, and the longest message of stream {self._stream!r} has {self._limit}",
                remedy="Write with payload=framed, which sends it in chunks.",
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
        self._message_bytes = link.room - BULK_HEAD.size
        self._buffers: list[bytes | memoryview] = []  # the next message
        self._buffered_bytes = 0

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

    def _put(self, buffers: Iterable[pa.Buffer]) -> None:
        """Append an item to the messages: small items share a message, a large item takes several.

        The caller may change the memory of the buffers afterwards: what is not sent yet is copied.
        """
        begin = len(self._buffers)
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            self._crc = crc32(view, self._crc)
            self.bytes += view.nbytes
            while view.nbytes:
                part = view[: self._message_bytes - self._buffered_bytes]
                self._buffers.append(part)
                self._buffered_bytes += part.nbytes
                view = view[part.nbytes :]
                if self._buffered_bytes == self._message_bytes:
                    self._send()
                    begin = 0
        if self._buffered_bytes:
            self._buffers[begin:] = [b"".join(self._buffers[begin:])]

    def finish(self, rows: int, deadline: Deadline) -> StagedPart:
        """Send the last message and finish the stage on the server.

        Raises TransportError if the server staged something else, and _NoResponse if only the response is missing;
        then the next call repeats the request.
        """
        if self._buffered_bytes:
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
        head = encode_bulk_head(self._request, BulkMessageKind.STAGE, self._sent_bytes)
        self._link.send(head, *self._buffers, timeout=timeout_s)
        self._sent_bytes += self._buffered_bytes
        self._buffers, self._buffered_bytes = [], 0
        self.is_broken = False
        self._deadline.progress()


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
    """

    def __init__(
        self, session: StreamSession, stream: str, transaction: Transaction, deadline: Deadline, *,
        evolve_schema: bool = False,
    ) -> None:  # fmt: skip
        self.transaction = transaction
        self._evolve_schema = evolve_schema
        self.rows = 0  # appended so far
        self.error: AeronSparkError | None = None
        self.stamp = ""  # of the transaction, when commit() has returned
        self._session = session
        self._stream = stream
        self._deadline = deadline
        self._appenders: list[ServerAppender] = []
        self._open: dict[int, _OpenAppender] = {}  # by partition
        self._bytes_payload = ""  # of values, as the stream has them
        self._partitions = 0

    @property
    def committed(self) -> bool:
        """Whether the server had committed the transaction before the first stage was opened; then rows are dropped."""
        return any(appender.committed for appender in self._appenders)

    def append(self, batch: WriteBatch) -> None:
        """Stage all rows of a batch. After an error, either none of them is staged or ``error`` is set."""
        self._refuse_broken()
        self._describe_stream()
        partition = self.default_partition if batch.partition is None else batch.partition
        check_partition(self._stream, partition, self._partitions)
        payload = self._bytes_payload if batch.payload == BYTES else batch.payload
        appender = self._appender(partition, payload, batch.rows.schema if payload == "arrow" else None)
        rows_before = appender.rows
        try:
            appender.append(batch.rows)
            self.rows += batch.rows.num_rows
        except BaseException as error:
            if appender.state is AppenderState.FAILED or appender.rows != rows_before:
                self.fail(error)
            raise

    @property
    def default_partition(self) -> int:
        """The partition of rows that name none: a writer's transactions take turns, each writer begins at its hash."""
        return (zlib.crc32(self.transaction.writer.encode()) + self.transaction.id) % self._partitions

    def finish(self) -> list[StagedPart]:
        """Wait until the server has all rows; return the parts that a commit names. Can be repeated after an error.

        Raises TransportError, and sets ``error``, if the parts have another number of rows than was appended.
        """
        self._refuse_broken()
        try:
            parts = [part for appender in self._appenders for part in appender.finish()]
            staged_rows = sum(part.rows for part in parts)
            if staged_rows != self.rows and not self.committed:
                raise TransportError(
                    f"{staged_rows} of {self.rows} rows of transaction {self.transaction.id} are staged",
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
                result = commit(self._session, self._stream, self.transaction, parts, self.rows, self._deadline, token)
            else:  # no stage was opened, which begins the transaction, too, and says if the writer id is used once
                begin(self._session, self._stream, self.transaction, timeout_s=self._deadline.remaining())
                result = commit_empty(self._session, self._stream, self.transaction, self._deadline, token)
        except SessionLost:
            raise
        except RefusedError as error:  # for example, a stage has expired
            self.fail(error)
            raise
        self.stamp = result.stamp
        return result.repeated

    def fail(self, error: BaseException) -> AeronSparkError:
        """Record that the stages do not have the rows of the transaction; return the first error that was recorded."""
        if self.error is None:
            self.error = _staging_error(error)
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

    def _appender(self, partition: int, payload: str, schema: pa.Schema | None) -> ServerAppender:
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
        appender = ServerAppender(
            self._session, self._stream, transaction, task=task, partition=partition,
            source=Source(transaction.writer, transaction.id, task), payload=payload, deadline=self._deadline,
            evolve_schema=self._evolve_schema,
        )  # fmt: skip
        self._appenders.append(appender)
        self._open[partition] = _OpenAppender(appender, payload, schema)
        return appender

    def _refuse_broken(self) -> None:
        if self.error is not None:
            raise copy.copy(self.error)

    def _describe_stream(self) -> None:
        if not self._partitions:
            found = describe_stream(self._session, self._stream, timeout_s=self._deadline.remaining())
            self._bytes_payload = "raw" if found.content == "raw" else "framed"
            self._partitions = len(found.partitions)


def check_partition(stream: str, partition: int, partitions: int) -> None:
    """Raise OptionError if the stream does not have the partition."""
    if not 0 <= partition < partitions:
        raise OptionError(
            f"stream {stream!r} has no partition {partition}", remedy=f"It has {partitions}, numbered from 0."
        )


def _staging_error(error: BaseException) -> AeronSparkError:
    if isinstance(error, AeronSparkError):
        return error
    return TransportError(f"staging rows was interrupted: {error!r}", remedy=STAGE_AGAIN)

"""Appending to a server's stream: a task stages rows over a bulk link, a commit makes them visible at once."""

from __future__ import annotations

import copy
import time
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
    SessionLost,
    StillWorking,
    TransportError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.log.writing import RowEncoder, Source
from aeron_spark.stream_client.session import RETRY_INTERVAL_S, SHORTEST_TIMEOUT_S, StreamSession
from aeron_spark.waiting import Deadline
from aeron_spark.wire.chunk import Header, Payload
from aeron_spark.wire.staged_items import MAX_ITEM_BYTES, encode_group_item, encode_values_item
from aeron_spark.wire.stream_rpc import (
    BULK_HEAD,
    AbortTransaction,
    BeginTransaction,
    BulkMessageKind,
    CommitEmptyTransaction,
    Committed,
    CommitTransaction,
    FindLostTransaction,
    FinishStage,
    LastCommitted,
    LastTransaction,
    OpenStage,
    Request,
    StagedPart,
    StageFinished,
    StageOpened,
    encode_bulk_head,
)

SEND_SECONDS: Final = 60.0  # without a byte being taken the server is stuck
COMMIT_SECONDS: Final = 600.0  # of a large transaction: it is copied into the stream
REPEAT_SECONDS: Final = 20.0  # a request that takes longer is repeated, so that the server says whether it is at work
ATTEMPTS: Final = 3  # of one request within a deadline, at least
ANSWER_SHARE: Final = 0.6  # of a request's time the server may wait itself; the rest is for its response to come back
# The request had no response: the server may have done it, or may do it later.
UNANSWERED: Final = (ConnectError, SessionLost, WaitTimeout)


@dataclass(frozen=True, slots=True)
class Transaction:
    """Whose, of which run, and which one: ids rise from one to the next. ``once``: the writer never comes again.

    ``author`` is who writes under the writer's id, the same over all of its runs; without it each run is one.
    ``acknowledged`` is the last transaction of the writer that the server acknowledged before this one, -1 for none,
    and ``stamp`` the one that came with it; "" where none was kept. A server whose store does not have it refuses this
    one. ``replaced`` is the run with which the same program entered before, "" where it did not: a server that no
    longer knows it, or knows a later one, refuses this one, too.
    """

    writer: str
    run: str
    id: int
    once: bool = False
    author: str = ""
    acknowledged: int = -1
    stamp: str = ""
    replaced: str = ""

    @property
    def by(self) -> str:
        """Who may repeat this transaction: its author."""
        return self.author or self.run


class State(Enum):
    """What a staged appender can still do."""

    OPEN = "open"  # it takes rows
    CLOSING = "closing"  # it takes no more; the server has not said yet that it has them all
    FINISHED = "finished"  # its parts are known, for good
    FAILED = "failed"  # its rows have to be staged again by another one


class ServerAppender:
    """Stages the rows of one task, all in one partition of ``stream``. Rows count up from 0 over everything appended.

    Without ``partition`` the server takes the one of the task's number, modulo the stream's partitions. Methods are
    those of :class:`aeron_spark.direct.appender.DirectAppender`. Nothing is visible before :func:`commit`.
    ``deadline`` bounds every wait in here; rows that Aeron takes, and responses, renew it. A caller that shares it
    renews it at the start of each of its own operations; without one each operation has ``SEND_SECONDS``.
    """

    def __init__(
        self, session: StreamSession, stream: str, transaction: Transaction, *, task: int, source: Source, payload: str,
        partition: int | None = None, max_message_bytes: int | None = None, clock: Callable[[], int] = time.time_ns,
        deadline: Deadline | None = None,
    ) -> None:  # fmt: skip
        self.committed = False  # whether the server has all of the transaction already: rows are dropped then
        self._session = session
        self._stream = stream
        self._transaction = transaction
        self._task = task
        self._partition = partition
        self._payload = payload
        self._asked = max_message_bytes
        self._encoder = RowEncoder(source, clock=clock)
        self._shares_deadline = deadline is not None
        self._deadline = deadline or session.deadline(SEND_SECONDS, f"the server of stream {stream!r}")
        self._limit = 0
        self._state = State.OPEN
        self._stage: _Stage | None = None
        self._parts: list[StagedPart] = []
        self._error: AeronSparkError | None = None

    @property
    def rows(self) -> int:
        """How many rows were appended, those that were dropped included."""
        return self._encoder.rows

    @property
    def state(self) -> State:
        """What it can still do."""
        return self._state

    def raw(self, values: pa.Array[Any], reserved: pa.Array[Any] | None = None) -> None:
        """Stage each value as one message, its bytes untouched."""
        with self._appending(None) as stage:
            if stage is None:
                self._encoder.rows += len(values)
            else:
                self._check_values(values)
                self._encoder.raw(values, reserved, stage)

    def framed(self, values: pa.Array[Any], reserved: pa.Array[Any] | None = None) -> None:
        """Stage each value in the wire format, any size."""
        with self._appending(None) as stage:
            if stage is None:
                self._encoder.rows += len(values)
            else:
                self._encoder.framed(values, reserved, stage, self._limit)

    def arrow(self, batch: pa.RecordBatch) -> None:
        """Stage the rows of a batch as Arrow, split by rows to fit a message, one larger row as a whole."""
        with self._appending(batch.schema) as stage:
            if stage is None:
                self._encoder.rows += batch.num_rows
            else:
                self._encoder.arrow(batch, stage, self._limit)

    def finish(self) -> list[StagedPart]:
        """Return what a commit has to name, once the server has it all; nothing where there is nothing to commit.

        May be called again. Once it has returned it returns the same parts. Once it has failed for good it raises the
        same error, and the rows have to be staged again. Where only the response did not come (ConnectError,
        SessionLost, WaitTimeout) the next call asks for it again.
        """
        self._renew()
        if self._state is State.FAILED:
            raise self._failure()
        if self._state is State.FINISHED:
            return list(self._parts)
        self._state = State.CLOSING
        try:
            parts = [] if self._stage is None else [self._stage.finish(self.rows, self._deadline)]
        except _Unanswered as unanswered:
            raise unanswered.error from None
        except BaseException as error:
            self._fail(error)
            raise
        self._state, self._parts = State.FINISHED, parts
        self._deadline.progress()
        return list(parts)

    def discard(self) -> None:
        """Throw away what was staged, as far as it is not finished."""
        if self._state in (State.OPEN, State.CLOSING):
            self._fail(UsageError("what was staged was thrown away", remedy="Stage the rows again."))

    @contextmanager
    def _appending(self, schema: pa.Schema | None) -> Iterator[_Stage | None]:
        """Give the stage for more rows, None where the transaction is committed; it is over where this fails half-way.

        An error before the first byte leaves the appender as it was.
        """
        self._renew()
        if self._state is State.FAILED:
            raise self._failure()
        if self._state is not State.OPEN:
            raise UsageError("a stage that is finished takes no more rows", remedy="Open another one.")
        stage = self._open(schema)
        before = 0 if stage is None else stage.bytes
        try:
            yield stage
        except BaseException as error:
            if stage is not None and (stage.broken or stage.bytes != before):
                self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        stage, self._stage, self._state = self._stage, None, State.FAILED
        self._error = (
            error
            if isinstance(error, AeronSparkError)
            else TransportError(f"staging rows was interrupted: {error!r}", remedy="Stage the rows again.")
        )
        if stage is not None:
            stage.discard()

    def _failure(self) -> AeronSparkError:
        assert self._error is not None
        return copy.copy(self._error)

    def _renew(self) -> None:
        if not self._shares_deadline:
            self._deadline.progress()

    def _open(self, schema: pa.Schema | None) -> _Stage | None:
        if self._stage is None and not self.committed:
            opened, self._stage = _Stage.open(
                self._session, (self._stream, self._partition), partial(self._request, schema), self._deadline
            )
            self.committed = self._stage is None
            self._limit = self._asked or opened.max_message_bytes
            self._deadline.progress()
        return self._stage

    def _request(self, schema: pa.Schema | None, link: int, number: int) -> OpenStage:
        one = self._transaction
        return OpenStage(
            stream=self._stream, writer=one.writer, run=one.run, transaction=one.id, single_use=one.once,
            producer=one.by, partition=self._partition, task=self._task, content=self._payload,
            schema=b"" if schema is None else bytes(schema.serialize()), link=link, request=number,
            max_message_bytes=self._asked or 0, acknowledged=one.acknowledged, stamp=one.stamp, replaced=one.replaced,
        )  # fmt: skip

    def _check_values(self, values: pa.Array[Any]) -> None:
        lengths: Any = pc.binary_length(values)  # type: ignore[call-overload]  # stubs know no Array[Any]
        longest = pc.max(lengths).as_py() or 0
        if longest > self._limit:
            raise DataFormatError(
                f"a value has {longest} bytes, and the longest message of stream {self._stream!r} has {self._limit}",
                remedy="Write with payload=framed, which sends it in chunks.",
            )


class _Unanswered(Exception):
    """A request that can be repeated had no response; ``error`` says why."""

    def __init__(self, error: AeronSparkError) -> None:
        super().__init__(error)
        self.error = error


class _Stage:
    """A stage on the server that the client fills over a bulk link."""

    def __init__(
        self, session: StreamSession, request: OpenStage, stage_id: str, lending: AbstractContextManager[BulkLink],
        link: BulkLink, deadline: Deadline,
    ) -> None:  # fmt: skip
        self.bytes = 0  # of all items so far
        self.broken = False  # whether it is not known what of it Aeron has taken
        self._session = session
        self._stream = request.stream
        self._id = stage_id
        self._request = request.request
        self._lending = lending
        self._link = link
        self._deadline = deadline
        self._sent = 0
        self._crc = 0
        self._room = link.room - BULK_HEAD.size
        self._waiting: list[memoryview] = []
        self._size = 0

    @classmethod
    def open(
        cls, session: StreamSession, key: object, request: Callable[[int, int], OpenStage], deadline: Deadline
    ) -> tuple[StageOpened, _Stage | None]:
        """Open a stage; return the server's response, and the stage, or None if the transaction is committed already.

        ``request`` makes the request from the numbers of a bulk link and of a stage's messages; ``key`` chooses the
        link. A reconnection ends all bulk links, so that a repeated request can name a link that the server does not
        know. No row was sent over it: another link takes its place until the deadline. Raises the EndedError then.
        """
        while True:
            lending = session.bulk_link(key, deadline.remaining())
            link = lending.__enter__()
            try:
                made = request(link.number, session.request_number())
                opened = session.call(made, timeout=deadline.remaining())
            except BaseException as error:
                link.close()
                lending.__exit__(None, None, None)
                if not isinstance(error, EndedError) or session.client.closed or not deadline.remaining():
                    raise
                session.sleep(min(RETRY_INTERVAL_S, deadline.remaining()))
                continue
            if not opened.stage:
                lending.__exit__(None, None, None)
                return opened, None
            return opened, cls(session, made, opened.stage, lending, link, deadline)

    def put_values(self, values: pa.Array[Any], reserved: pa.Array[Any] | None) -> None:
        """Send values that become one message each."""
        size: Any = values.nbytes
        slices = max(1, -(-size // (MAX_ITEM_BYTES // 2)))  # an item takes so much and no more
        step = max(1, len(values) // slices)
        for first in range(0, len(values), step):
            part = values.slice(first, step)
            self._put(encode_values_item(part, None if reserved is None else reserved.slice(first, step)))

    def put_group(self, header: Header, payload: Payload | Sequence[pa.Buffer], reserved: int) -> None:
        """Send a group, whose payload has to stay as it is until the stage is finished; ``reserved`` is not staged."""
        self._put(encode_group_item(header, payload))

    def _put(self, buffers: Iterable[pa.Buffer]) -> None:
        """Send an item: small ones together, large ones in several messages."""
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            self._crc = crc32(view, self._crc)
            self.bytes += view.nbytes
            while view.nbytes:
                part = view[: self._room - self._size]
                self._waiting.append(part)
                self._size += part.nbytes
                view = view[part.nbytes :]
                if self._size == self._room:
                    self._send()

    def finish(self, rows: int, deadline: Deadline) -> StagedPart:
        """Send the rest and have the server close it. Raises TransportError where it has something else.

        Raises _Unanswered where only the server's word is missing; the next call asks for it again.
        """
        if self._size:
            self._send()
        found = self._await_closed(deadline)
        if found != StageFinished(rows, self._sent, self._crc):
            raise TransportError(
                f"the server staged {found.rows} rows in {found.size} bytes, and {rows} rows in {self._sent} bytes "
                "were sent",
                remedy="Stage the rows again.",
            )
        self._lending.__exit__(None, None, None)
        return StagedPart(self._id, rows, self._sent, self._crc)

    def discard(self) -> None:
        """End the bulk link, upon which the server discards the stages on it that are not finished."""
        self._link.close()
        self._lending.__exit__(None, None, None)

    def _await_closed(self, deadline: Deadline) -> StageFinished:
        while True:
            seconds = _share_of(deadline)
            try:
                return self._session.call(
                    FinishStage(self._stream, self._id, self._sent, seconds * ANSWER_SHARE), timeout=seconds
                )
            except UNANSWERED as error:
                if self._session.client.closed or not deadline.remaining():
                    raise _Unanswered(error) from error
                self._session.sleep(min(RETRY_INTERVAL_S, deadline.remaining()))

    def _send(self) -> None:
        # Where this raises, Aeron may have taken the message, or may take it later: it cannot be sent again.
        self.broken = True
        seconds = max(SHORTEST_TIMEOUT_S, self._deadline.remaining())
        head = encode_bulk_head(self._request, BulkMessageKind.STAGE, self._sent)
        self._link.send(head, *self._waiting, timeout=seconds)
        self._sent += self._size
        self._waiting, self._size = [], 0
        self.broken = False
        self._deadline.progress()


def commit(
    session: StreamSession, stream: str, transaction: Transaction, staged: Sequence[StagedPart], rows: int,
    deadline: Deadline | None = None, token: str = "",
) -> tuple[bool, str]:  # fmt: skip
    """Make what was staged visible, all of it at once; return whether that had been done before, and its stamp.

    ``rows`` is how many rows the transaction has, as whoever produced them counted: the server refuses a commit whose
    parts have another number, or that names no part. ``deadline`` is how long the server may be silent; while it says
    that it is at work this waits for ``COMMIT_SECONDS``. May be called again after any failure: what is committed stays
    so, once. The server keeps ``token`` with the author's last transaction, see :func:`last_with_token`. A writer keeps
    the stamp of its last transaction for :func:`enter`.
    """
    one, parts = transaction, tuple(staged)

    def request(seconds: float) -> CommitTransaction:
        return CommitTransaction(stream, one.writer, one.run, one.id, one.by, parts, rows, seconds, token)

    return _commit(session, deadline, request)


def commit_empty(
    session: StreamSession, stream: str, transaction: Transaction, deadline: Deadline | None = None, token: str = ""
) -> tuple[bool, str]:
    """Commit a transaction that has no row at all; see :func:`commit`."""
    one = transaction

    def request(seconds: float) -> CommitEmptyTransaction:
        return CommitEmptyTransaction(stream, one.writer, one.run, one.id, one.by, seconds, token)

    return _commit(session, deadline, request)


def _commit(
    session: StreamSession, deadline: Deadline | None, request: Callable[[float], Request[Committed]]
) -> tuple[bool, str]:
    """Commit; ``request`` makes the request of the seconds that the server may wait itself."""
    longest = session.deadline(COMMIT_SECONDS, "the commit to end")
    silent = longest if deadline is None else deadline
    while True:
        seconds = _share_of(silent)
        try:
            committed = session.call(request(seconds * ANSWER_SHARE), timeout=seconds)
        except StillWorking:
            if session.client.closed or not longest.remaining():
                raise
            if silent is not longest:
                silent.progress()
        except UNANSWERED:
            if session.client.closed or not silent.remaining():
                raise
            session.sleep(min(RETRY_INTERVAL_S, silent.remaining()))
        else:
            return committed.repeated, committed.stamp


def _share_of(deadline: Deadline) -> float:
    """How long one attempt of a request may take, so that several fit into the deadline."""
    share = min(REPEAT_SECONDS, deadline.seconds / ATTEMPTS)
    return max(SHORTEST_TIMEOUT_S, min(share, deadline.remaining()))


def enter(
    session: StreamSession, stream: str, transaction: Transaction, *, seconds: float | None = None
) -> tuple[int, str]:
    """Begin a transaction, and fence earlier runs; return the writer's last committed one, or -1, and its stamp.

    With the id -1 it is whichever comes next. Raises RefusedError where a later run has fenced this one, where another
    author has committed in this transaction's place, and, with the reason "diverged", where the server was restored
    from a copy without what it acknowledged.
    """
    one = transaction
    request = BeginTransaction(
        stream, one.writer, one.run, None if one.id < 0 else one.id, one.once, one.by, one.acknowledged, one.stamp,
        one.replaced,
    )  # fmt: skip
    begun = session.call(request, timeout=seconds)
    return begun.last, begun.stamp


def first_lost(session: StreamSession, stream: str, writer: str, acknowledged: int, stamp: str) -> int | None:
    """Return the writer's first acknowledged transaction that is no longer in the stream; None where all are there."""
    return session.call(FindLostTransaction(stream, writer, acknowledged, stamp)).transaction


def last_of(session: StreamSession, stream: str, transaction: Transaction, *, seconds: float | None = None) -> int:
    """Return the last transaction that the author of this one has committed under its writer id, or -1."""
    return _last_committed(session, stream, transaction, seconds).transaction


def last_with_token(session: StreamSession, stream: str, transaction: Transaction) -> tuple[int, str]:
    """Return the last transaction that the author of this one has committed, or -1, and its token, or ""."""
    found = _last_committed(session, stream, transaction, None)
    return found.transaction, found.token


def _last_committed(
    session: StreamSession, stream: str, transaction: Transaction, seconds: float | None
) -> LastCommitted:
    return session.call(LastTransaction(stream, transaction.writer, transaction.by), timeout=seconds)


def abort(session: StreamSession, stream: str, transaction: Transaction, *, seconds: float | None = None) -> None:
    """Drop what was staged; a transaction that is committed stays."""
    session.call(AbortTransaction(stream, transaction.writer, transaction.run, transaction.id), timeout=seconds)

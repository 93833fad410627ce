"""A program's writer of transactions to a server's stream: rows are staged at once, a commit makes them visible.

A transaction becomes visible completely or not at all, and exactly once. If an outage destroys its stages, the writer
stages its rows again under the same number. It keeps the rows in memory for this, up to ``MEMORY_BYTES``.
"""

from __future__ import annotations

import copy
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import Any, Final, TypedDict, TypeVar

import pyarrow as pa

from aeron_spark.errors import (
    OUTAGE,
    REFUSALS,
    AeronSparkError,
    RefusedError,
    SessionLost,
    StillWorking,
    TransportError,
    UsageError,
)
from aeron_spark.process import bind_to_process
from aeron_spark.rows.gathering import Text
from aeron_spark.stream_client.operations import describe_stream
from aeron_spark.stream_client.row_input import RowInput, Rows, Stage, WriteBatch, check_payload
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.stream_client.staging import (
    STAGE_AGAIN,
    KnownStream,
    StagedTransaction,
    begin,
    check_partition,
    last_committed,
)
from aeron_spark.waiting import Deadline
from aeron_spark.wire.field_bounds import check_token
from aeron_spark.wire.stream_requests import NEXT_NUMBER, Begun, Transaction

MEMORY_BYTES: Final = 64 << 20  # of a transaction's rows; a larger transaction fails if an outage destroys its stages
OUTAGE_TIMEOUT_S: Final = 60.0  # long enough for a restart of the server
FIRST_PAUSE_S: Final = 0.05  # between two attempts; each pause is twice as long as the one before
MAX_PAUSE_S: Final = 2.0  # a program waits in commit() for the end of an outage
ABORT_TIMEOUT_S: Final = 5.0  # for the server to confirm an abort; later it discards the stages by itself
COMMITTED: Final = "committed"  # the reason of abort(), for a transaction that is in the stream
REPEAT_COMMIT: Final = "Call commit() again, or abort()."
NO_NUMBER: Final = -1  # the result of a commit without rows, which makes no transaction

_W = TypeVar("_W", bound="Writer")


class WriterKeywords(TypedDict, total=False):
    """The keywords of ``Client.writer``, with and without a buffer."""

    writer_id: str | None
    """Continues the numbering of that writer's transactions; by default a new id."""
    partition: int | None
    """Of all rows; by default each transaction goes to the next partition."""
    payload: str
    """``auto`` by default."""
    schema: pa.Schema | None
    """The columns of a stream that has none yet."""
    timeout: float
    """Seconds, 60 by default."""
    evolve_schema: bool
    """Whether the rows may add nullable columns to a ``strict`` schema; not by default."""


class Writer(ABC):
    """Writes transactions. The end of a ``with`` block commits, an exception in the block aborts.

    Thread-safe: a call waits for the calls of other threads. The threads share one transaction: a commit has the rows
    of all calls of ``write`` that returned since the last one. If none did, it has nothing to commit and returns -1.
    """

    _rows: RowInput

    def __init__(self) -> None:
        # Re-entrant: a handler of a signal may close the writer while the main thread is in a call.
        self._calls: Final = threading.RLock()
        bind_to_process(self)

    def write(self, data: Rows, *, partition: int | None = None) -> None:
        """Add rows to the transaction, all or none.

        ``data`` is a dict (one row), an iterable of dicts, a pandas DataFrame, a structured numpy array, a pyarrow
        RecordBatch or Table, bytes (a value), or a list of bytes. Without rows it adds nothing. An iterable is in
        memory until its last row. The stream's schema decides what a column can have; without one, the argument
        ``schema`` of ``Client.writer``, else the rows themselves, up to the first 65,536 or 8 MiB of them.

        Without ``partition`` all rows of a transaction go to the same partition, in order; the next transaction takes
        the next partition. Raises DataFormatError with the number of the row, from 0, and the name of the column, for a
        value that the stream cannot store unchanged; an exception of an iterable is raised unchanged.
        """
        with self._calls:
            self._add(partition, lambda to, stage: self._rows.write(data, to, stage))

    def write_columns(self, columns: Mapping[str, Any], *, partition: int | None = None) -> None:
        """Add rows as :meth:`write` does. ``columns`` has lists, or numpy, pandas or pyarrow arrays, of one length."""
        with self._calls:
            self._add(partition, lambda to, stage: self._rows.write_columns(columns, to, stage))

    def write_json(self, text: Text | Iterable[Text], *, partition: int | None = None) -> None:
        """Add rows as :meth:`write` does. ``text`` has JSON objects or an array of them; or it is an iterable of lines.

        Times are texts in ISO 8601, bytes are base64, and decimals are numbers or texts. The schema says so: without
        one, a text is a text.
        """
        with self._calls:
            self._add(partition, lambda to, stage: self._rows.write_json(text, to, stage))

    @abstractmethod
    def _add(self, partition: int | None, add: Callable[[int | None, Stage], None]) -> None:
        """Call ``add`` with the partition of the rows and a function that stages batches. The caller has ``_calls``."""

    @abstractmethod
    def commit(self, token: str = "") -> int:
        """Commit the transaction and return its number, or -1 without rows and token: then no transaction is made.

        ``token`` is the program's own text of at most 1 KiB, for example its position in the source of the rows. It is
        stored together with the transaction: ``last_token`` has it also after a restart of the program. The next write
        begins another transaction, with a higher number.
        """

    @abstractmethod
    def abort(self) -> None:
        """Drop the rows that were written since the last successful commit."""

    @abstractmethod
    def close(self) -> None:
        """Stop writing and drop uncommitted rows. A second call does nothing."""

    def __enter__(self: _W) -> _W:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self.close()


class _Phase(Enum):
    """The calls that an open transaction accepts."""

    OPEN = "open"  # it takes rows
    SEALED = "sealed"  # commit() was called and failed: the server may have the transaction, so it takes no more rows
    FAILED = "failed"  # some of its rows are lost: it can only be aborted


class _OpenTransaction:
    """The transaction that is being written: its rows in memory, and its stages on the server."""

    def __init__(self, staged: StagedTransaction) -> None:
        self.staged = staged
        self.rows = 0
        self.bytes = 0
        self.token = ""  # set by commit()
        self.batches: list[WriteBatch] | None = []  # all rows, to stage them again; None: they need too much memory
        self.phase = _Phase.OPEN
        self.commit_sent = False  # then the server may have committed the transaction, or may commit it later
        self.error: AeronSparkError | None = None  # why it is not OPEN

    @property
    def number(self) -> int:
        """The number of the transaction."""
        return self.staged.transaction.number

    def add(self, batches: Sequence[WriteBatch], memory_bytes: int) -> None:
        """Count the rows of staged batches, and keep them up to ``memory_bytes``."""
        self.rows += sum(batch.rows.num_rows for batch in batches)
        self.bytes += sum(batch.rows.nbytes for batch in batches)
        if self.bytes > memory_bytes:
            self.batches = None
        elif self.batches is not None:
            self.batches += batches

    def fail(self, cause: AeronSparkError) -> AeronSparkError:
        """Allow only an abort from now on; return the error that says so."""
        self.phase = _Phase.FAILED
        self.error = TransportError(
            f"{cause.what}; the {self.bytes} bytes of transaction {self.number} are too many to be sent again",
            remedy="Call abort(), and write the rows again in smaller transactions.",
        )
        return copy.copy(self.error)


class _Final(Exception):
    """An error after which an attempt must not be repeated."""

    def __init__(self, error: AeronSparkError) -> None:
        super().__init__(error)
        self.error = error


class StreamWriter(Writer):
    """Writes to ``stream`` while its server can be reached; ``Client.writer`` makes it.

    With a ``writer_id`` it continues the numbering of that writer's transactions; an earlier run with that id can no
    longer write. ``timeout`` bounds an outage, in seconds: no call waits longer without a response of the server. While
    the server says that it works on a commit, the call waits for up to ten minutes. Raises OptionError if the stream
    does not exist, RefusedError if the client's key is not granted it. If the server's store was restored from a copy
    without acknowledged transactions, ``write``, ``commit`` and ``abort`` raise RefusedError with the reason
    ``diverged`` until ``accept_loss`` is called. With ``evolve_schema`` its rows may add columns to a strict schema.

    After an error of ``write`` the transaction is as it was before the call, also after an outage. Only if the server
    lost the stages of a transaction that is larger than the writer keeps in memory (64 MiB), every further call raises
    that error until ``abort()``. After a failed ``commit()``, ``write`` raises its error until that transaction is
    committed or aborted.
    """

    def __init__(
        self,
        session: StreamSession,
        stream: str,
        *,
        writer_id: str | None = None,
        partition: int | None = None,
        payload: str = "auto",
        schema: pa.Schema | None = None,
        timeout: float = OUTAGE_TIMEOUT_S,
        memory_bytes: int = MEMORY_BYTES,
        evolve_schema: bool = False,
    ) -> None:
        super().__init__()
        self.stream = stream
        self.writer_id = writer_id or f"once-{uuid.uuid4()}"
        self._session = session
        self._partition = partition
        check_payload(payload)
        self._memory_bytes = memory_bytes
        self._evolve_schema = evolve_schema
        self._producer = self._run = uuid.uuid4().hex
        self._next_run = ""  # an abort has begun with this run, and the server has not confirmed it yet
        self._single_use = writer_id is None
        self._closed = False
        self._deadline = session.deadline(timeout, f"the server of stream {stream!r}")
        found = describe_stream(session, stream, timeout_s=self._deadline.remaining())
        self._known = KnownStream(session, stream, found)
        self._partitions = len(found.partitions)
        self._rows = RowInput(payload, schema or found.schema)
        if partition is not None:
            check_partition(stream, partition, self._partitions)
        self._last = Begun(-1, "")  # the last acknowledged transaction
        if not self._single_use:
            self._last = begin(session, stream, self._transaction(NEXT_NUMBER), timeout_s=self._deadline.remaining())
        self._next = self._last.last + 1
        self._open: _OpenTransaction | None = None

    @property
    def last(self) -> int:
        """The number of the last committed transaction of this writer id, also of an earlier run; -1 before the first.

        After a ``commit()`` that raised it is the number of the transaction before, until the outcome is known.
        """
        return self._last.last

    @property
    def last_token(self) -> str:
        """The token of the transaction ``last``, "" if it has none.

        A program that commits its position in a source as the token continues there after a restart: the rows up to
        this position are in the stream, once, and no others.
        """
        return self._last.token

    def _add(self, partition: int | None, add: Callable[[int | None, Stage], None]) -> None:
        self._refuse_closed()
        target = self._partition if partition is None else partition
        if target is not None:
            check_partition(self.stream, target, self._partitions)
        if self._open is not None:
            self._refuse_unwritable(self._open)
        add(target, self._add_batches)

    def _add_batches(self, batches: Sequence[WriteBatch]) -> None:
        """Stage batches as rows of the open transaction, all or none."""
        if self._open is None:
            self._open = _OpenTransaction(self._new_staged(self._transaction(self._next)))
        open_ = self._open
        self._refuse_unwritable(open_)
        self._deadline.progress()
        try:
            self._stage(open_, batches)
        except BaseException as error:
            if open_.staged.error is not None or open_.staged.rows != open_.rows:
                cause = open_.staged.fail(error)
                if open_.batches is None and open_.phase is _Phase.OPEN:
                    open_.fail(cause)
            raise
        open_.add(batches, self._memory_bytes)

    def commit(self, token: str = "") -> int:
        """See :meth:`Writer.commit`. Raises RefusedError if another writer with this id has taken over.

        It can be called again after an error: the transaction keeps its number and its token and is committed once, or
        the call fails again. Until a call of ``commit()`` or ``abort()`` succeeds, the transaction may be in the stream
        or not. Raises UsageError for a token that is too long, and for another token in a repeated call.
        """
        with self._calls:
            return self._commit(token)

    def _commit(self, token: str) -> int:
        self._refuse_closed()
        check_token(self.writer_id, self._next if self._open is None else self._open.number, token)
        self._rows.flush(self._add_batches)  # if it raises, the transaction still takes rows
        open_ = self._open_for_commit(token)
        if open_ is None:
            self.abort()
            return NO_NUMBER
        self._deadline.progress()

        def attempt() -> None:
            if open_.staged.rows != open_.rows:  # a write() was interrupted after its rows were staged
                open_.staged.fail(UsageError("a write was interrupted", remedy=STAGE_AGAIN))
            if open_.staged.error is not None:
                self._stage_again(open_)
            if open_.staged.committed and not open_.commit_sent:
                raise _Final(self._foreign_commit(open_))
            open_.staged.finish()
            open_.commit_sent = True
            open_.staged.commit(open_.token)

        try:
            stamp = self._repeat(open_, attempt) or open_.staged.stamp
        except BaseException as error:
            if open_.phase is _Phase.SEALED:
                open_.error = (
                    error
                    if isinstance(error, AeronSparkError)
                    else TransportError(f"commit() was interrupted: {error!r}", remedy=REPEAT_COMMIT)
                )
            raise
        return self._end_committed(open_, stamp)

    def _open_for_commit(self, token: str) -> _OpenTransaction | None:
        """Let the open transaction take no more rows, and set its token; None if there is nothing to commit."""
        open_ = self._open
        if (open_ is None or not open_.rows) and token:
            open_ = self._open = open_ or _OpenTransaction(self._new_staged(self._transaction(self._next)))
        elif open_ is None or not (open_.rows or open_.token):
            return None
        if open_.phase is _Phase.FAILED:
            assert open_.error is not None
            raise copy.copy(open_.error)
        if open_.phase is _Phase.SEALED and token not in ("", open_.token):
            raise UsageError(
                f"transaction {open_.number} cannot get the token {token!r}: its commit() was called with "
                f"{open_.token!r} and failed, and the server may have committed it",
                remedy="Call commit() again, without a token.",
            )
        if open_.phase is _Phase.OPEN:
            open_.phase, open_.token = _Phase.SEALED, token
        return open_

    def abort(self) -> None:
        """See :meth:`Writer.abort`.

        After a failed ``commit()`` it requests the state from the server, which needs no space on the server's disk.
        Raises RefusedError with the reason "committed" if the transaction is committed; ``last`` is its number then.
        Raises ConnectError or WaitTimeout if the server does not respond; then it can be called again.
        """
        with self._calls:
            open_ = self._open
            if open_ is None:
                self._rows.abort()
                return
            if open_.commit_sent and not self._closed:
                self._refuse_committed(open_)
            self._drop(open_)

    def close(self) -> None:
        """See :meth:`Writer.close`. A transaction whose ``commit()`` failed may be in the stream or not."""
        with self._calls:
            if not self._closed:
                self._closed = True
                self.abort()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.close()
            return
        self.commit()  # if it raises, the writer stays open: a further commit() or abort() gives the outcome
        self.close()

    def accept_loss(self) -> int:
        """Continue with a stream that lacks acknowledged transactions of this writer.

        Call it after the server's store was restored from an older copy. Returns the last transaction of this writer
        that the stream has, -1 for none. The open transaction keeps its rows and its number; no number is used again.
        """
        with self._calls:
            return self._accept_loss()

    def _accept_loss(self) -> int:
        self._refuse_closed()
        self._deadline.progress()
        if self._next_run:  # an abort() had no response: the server may know this run, and have fenced the one before
            self._run, self._next_run = self._next_run, ""
        transaction = Transaction(self.writer_id, self._run, NEXT_NUMBER, self._single_use, self._producer)
        self._last = begin(self._session, self.stream, transaction, timeout_s=self._deadline.remaining())
        self._next = max(self._next, self._last.last + 1)
        self._known.forget()
        if self._open is not None:  # its rows are staged again, with the state that the server has now
            self._open.staged.fail(UsageError("a loss was accepted", remedy=STAGE_AGAIN))
        return self._last.last

    def _transaction(self, number: int, *, run: str = "", replaced: str = "") -> Transaction:
        return Transaction(
            self.writer_id,
            run or self._run,
            number,
            self._single_use,
            self._producer,
            self._last.last,
            self._last.stamp,
            replaced,
        )

    def _transaction_of(self, open_: _OpenTransaction) -> Transaction:
        """Return the open transaction. After a commit request, a server that lost the writer's run must refuse it."""
        return self._transaction(open_.number, replaced=self._run if open_.commit_sent else "")

    def _new_staged(self, transaction: Transaction) -> StagedTransaction:
        has_begun = not self._single_use or self._last.last >= 0
        return StagedTransaction(
            self._session,
            self._known,
            transaction,
            self._deadline,
            has_begun=has_begun,
            evolve_schema=self._evolve_schema,
        )

    def _end_committed(self, open_: _OpenTransaction, stamp: str) -> int:
        self._last, self._next, self._open = Begun(open_.number, stamp, open_.token), open_.number + 1, None
        self._rows.commit()
        return open_.number

    def _drop(self, open_: _OpenTransaction) -> None:
        self._open = None
        self._rows.abort()
        if not open_.staged.abort(min(ABORT_TIMEOUT_S, self._deadline.seconds)):
            # The server may discard the stages of this number at any later time: the next transaction has another.
            self._next = open_.number + 1

    def _stage(self, open_: _OpenTransaction, batches: Sequence[WriteBatch]) -> None:
        staged = 0

        def attempt() -> None:
            nonlocal staged
            if open_.staged.error is not None:
                self._stage_again(open_, batches[:staged])
            while staged < len(batches):
                open_.staged.append(batches[staged])
                staged += 1
            if open_.staged.committed:
                raise _Final(self._foreign_commit(open_))

        self._repeat(open_, attempt)

    def _repeat(self, open_: _OpenTransaction, attempt: Callable[[], None]) -> str:
        """Repeat ``attempt`` until it succeeds, or until the time that the first failure leaves is over.

        Returns "" after a success. Returns the stamp if the server has committed the transaction in the meantime, after
        a commit request. Raises at once a refusal that a repetition gets again, such as that of a schema.
        """
        end: Deadline | None = None
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                attempt()
                return ""
            except _Final as final:
                raise final.error from final.error.__cause__
            except StillWorking:  # raised after the longest time that a commit may take
                raise
            except (*OUTAGE, RefusedError) as error:
                cause: AeronSparkError = error
                if isinstance(error, RefusedError):
                    if _is_permanent(error):
                        raise
                    self._deadline.progress()  # the server responds, and has lost the stages
            if end is None:
                end = self._session.deadline(self._deadline.remaining(), "the server")
            found = self._await_server(open_, cause, end, pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
            if found.last < open_.number:
                continue
            if open_.commit_sent:
                return found.stamp
            raise self._foreign_commit(open_)

    def _await_server(self, open_: _OpenTransaction, cause: AeronSparkError, end: Deadline, pause_s: float) -> Begun:
        """Wait for the server; return the writer's last committed transaction.

        Raises ``cause``, or a later error, at the deadline. Raises RefusedError if another run has taken over, and if
        the stream lacks acknowledged transactions.
        """
        while True:
            if self._session.client.closed or not end.remaining():
                raise cause
            self._session.sleep(min(pause_s, end.remaining()))
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
            try:
                found = begin(self._session, self.stream, self._transaction_of(open_), timeout_s=end.remaining())
            except OUTAGE as error:
                cause = error
            else:
                self._deadline.progress()
                return found

    def _stage_again(self, open_: _OpenTransaction, more: Sequence[WriteBatch] = ()) -> None:
        """Stage all rows of the transaction again, and ``more``, under the same number."""
        cause = open_.staged.error
        assert cause is not None
        if open_.batches is None:
            raise _Final(open_.fail(cause))
        open_.staged.discard()
        open_.staged = self._new_staged(self._transaction_of(open_))
        try:
            for batch in (*open_.batches, *more):
                open_.staged.append(batch)
        except BaseException as error:
            open_.staged.fail(error)
            raise

    def _refuse_committed(self, open_: _OpenTransaction) -> None:
        """Make sure that the server cannot commit the transaction later. Raises RefusedError if it has committed it."""
        self._deadline.progress()
        # Use the same run again after a missing response: two new runs could fence each other.
        self._next_run = self._next_run or uuid.uuid4().hex
        fence = self._transaction(NEXT_NUMBER, run=self._next_run, replaced=self._run)
        stamp = begin(self._session, self.stream, fence, timeout_s=self._deadline.remaining()).stamp
        last = last_committed(self._session, self.stream, fence, timeout_s=self._deadline.remaining()).transaction
        self._run, self._next_run = self._next_run, ""
        if last >= open_.number:
            self._end_committed(open_, stamp)
            raise RefusedError(
                f"transaction {open_.number} of writer {self.writer_id!r} is in the stream: commit() failed in this "
                "program, and succeeded on the server",
                remedy="Continue with the next transaction.",
                reason=COMMITTED,
            )

    def _foreign_commit(self, open_: _OpenTransaction) -> RefusedError:
        return RefusedError(
            f"transaction {open_.number} of writer {self.writer_id!r} is committed, but not by this writer",
            remedy="Give each writer its own id, or make a new writer, which continues after that transaction.",
        )

    def _refuse_unwritable(self, open_: _OpenTransaction) -> None:
        if open_.phase is _Phase.FAILED:
            assert open_.error is not None
            raise copy.copy(open_.error)
        if open_.phase is _Phase.SEALED:
            error = open_.error or UsageError("it has not returned", remedy=REPEAT_COMMIT)
            refused = error.with_what(
                f"transaction {open_.number} takes no more rows, as its commit() failed: {error.what}"
            )
            refused.remedy = REPEAT_COMMIT
            raise refused

    def _refuse_closed(self) -> None:
        if self._closed:
            raise UsageError("the writer is closed", remedy="Make another one.")


def _is_permanent(refusal: RefusedError) -> bool:
    """Whether the server refuses the same request again. A refusal without a reason can mean that stages are lost."""
    return refusal.reason in REFUSALS and not refusal.retriable and not isinstance(refusal, SessionLost)

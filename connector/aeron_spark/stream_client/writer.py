"""Writing to a server's stream by transactions, as a program does: rows are staged as they come, a commit shows them.

A transaction becomes visible as a whole, once. Where an outage takes its stages, its rows are staged anew under the
same number: they are kept here until the commit, as far as they fit ``KEPT_BYTES``.
"""

from __future__ import annotations

import copy
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from types import TracebackType
from typing import Final, TypeVar

from aeron_spark.errors import AeronSparkError, RefusedError, StillWorking, TransportError, UsageError
from aeron_spark.log.writing import Transaction
from aeron_spark.stream_client.admin import describe_stream
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.stream_client.staging import OUTAGE, StagedTransaction, check_partition
from aeron_spark.stream_client.transactions import begin, last_committed
from aeron_spark.stream_client.write_batches import Data, WriteBatch, check_payload, write_batches_of
from aeron_spark.waiting import Deadline

KEPT_BYTES: Final = 64 << 20  # of a transaction's rows; a larger one fails where an outage takes its stages
OUTAGE_SECONDS: Final = 60.0  # a restart of the server takes some, a network's hiccup fewer
FIRST_PAUSE: Final = 0.05  # seconds between two attempts; twice as long each time
LONGEST_PAUSE: Final = 2.0
ABORT_SECONDS: Final = 5.0  # for the server to say that it dropped a transaction, which it does by itself later
NO_NUMBER: Final = -1  # of a commit without rows: there is no transaction

_W = TypeVar("_W", bound="Writer")


class Writer(ABC):
    """What writes transactions. The end of a ``with`` block commits, an exception in it aborts. For one thread."""

    @abstractmethod
    def write(self, data: Data, *, partition: int | None = None) -> None:
        """Add rows to the transaction, all or none: a pyarrow RecordBatch or Table, bytes (a value), a list of bytes.

        Without ``partition`` all rows of a transaction go to the same one, in order; the next transaction takes the
        next partition.
        """

    @abstractmethod
    def commit(self) -> int:
        """End the transaction well and return its number, -1 without rows: then there is none.

        The next write begins another transaction, with a higher number.
        """

    @abstractmethod
    def abort(self) -> None:
        """Drop what was written since the last commit that returned."""

    @abstractmethod
    def close(self) -> None:
        """End writing; what is not committed is dropped. Again, it does nothing."""

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
    """What can still be done with an open transaction."""

    OPEN = "open"  # it takes rows
    SEALED = "sealed"  # commit() was called and has not succeeded: the server may have it, so that it takes no more
    FAILED = "failed"  # some of its rows are lost: it can only be aborted


class _Open:
    """The transaction that is being written: its rows on this side, and how far they are on the server."""

    def __init__(self, staging: StagedTransaction) -> None:
        self.staging = staging
        self.rows = 0
        self.size = 0
        self.kept: list[WriteBatch] | None = []  # all of its rows, for staging them again; None: they are too many
        self.phase = _Phase.OPEN
        self.asked = False  # whether a commit was sent: the server may have the transaction, or may do it later
        self.error: AeronSparkError | None = None  # why it is not OPEN

    @property
    def number(self) -> int:
        """Its number."""
        return self.staging.transaction.id

    def add(self, pieces: Sequence[WriteBatch], most: int) -> None:
        """Count and keep pieces that are staged."""
        self.rows += sum(piece.rows.num_rows for piece in pieces)
        self.size += sum(piece.rows.nbytes for piece in pieces)
        if self.size > most:
            self.kept = None
        elif self.kept is not None:
            self.kept += pieces

    def fail(self, why: AeronSparkError) -> AeronSparkError:
        """It can only be aborted from now on; return what says so."""
        self.phase = _Phase.FAILED
        self.error = TransportError(
            f"{why.what}; the {self.size} bytes of transaction {self.number} are too many to be sent again",
            remedy="Call abort(), and write the rows again in smaller transactions.",
        )
        return copy.copy(self.error)


class _Final(Exception):
    """An error that waiting does not mend."""

    def __init__(self, error: AeronSparkError) -> None:
        super().__init__(error)
        self.error = error


class StreamWriter(Writer):
    """Writes to ``stream`` while its server is there; ``Client.writer`` makes it.

    With a ``writer_id`` transactions are numbered on from the last one the server has of it, and an earlier writer of
    that id is fenced off. ``timeout`` is how long an outage may last, in seconds: no call waits longer without a sign
    of the server's life. A commit that the server says it is at work on is waited for up to ten minutes. Raises
    OptionError for a stream that is not there, RefusedError for what is not allowed. Where the server's store was
    restored from a copy without transactions that it had acknowledged, ``write``, ``commit`` and ``abort`` raise
    RefusedError with the reason ``diverged`` until ``accept_loss`` is called.
    """

    def __init__(
        self, session: StreamSession, stream: str, *, writer_id: str | None = None, partition: int | None = None,
        payload: str = "auto", timeout: float = OUTAGE_SECONDS, kept_bytes: int = KEPT_BYTES,
    ) -> None:  # fmt: skip
        self.stream = stream
        self.writer_id = writer_id or f"once-{uuid.uuid4()}"
        self._session = session
        self._partition = partition
        self._payload = check_payload(payload)
        self._most = kept_bytes
        self._producer = self._run = uuid.uuid4().hex
        self._next_run = ""  # which is to take over from this writer's run, where the server has not said that it did
        self._single_use = writer_id is None
        self._closed = False
        self._deadline = session.deadline(timeout, f"the server of stream {stream!r}")
        found = describe_stream(session, stream, timeout_s=self._deadline.remaining())
        self._partitions = len(found.partitions)
        if partition is not None:
            check_partition(stream, partition, self._partitions)
        self._last, self._stamp = -1, ""  # what the server acknowledged: a number and its stamp
        if not self._single_use:
            self._last, self._stamp = begin(
                session, stream, self._transaction(-1), timeout_s=self._deadline.remaining()
            )
        self._next = self._last + 1
        self._open: _Open | None = None

    @property
    def last(self) -> int:
        """The number of the last committed transaction; -1 before the first one."""
        return self._last

    def write(self, data: Data, *, partition: int | None = None) -> None:
        """See :meth:`Writer.write`. Raises DataFormatError for rows the stream cannot have; none is lost by an outage.

        After any error the transaction is as it was before; where its earlier rows were lost with the server's state
        and are more than the writer keeps (64 MiB) it can only be aborted, which every further call says. Raises
        the error of a failed ``commit()`` again until that transaction is committed or aborted.
        """
        self._refuse_closed()
        at = self._partition if partition is None else partition
        if at is not None:
            check_partition(self.stream, at, self._partitions)
        pieces = list(write_batches_of(data, self._payload, at))
        if not pieces:
            return
        if self._open is None:
            self._open = _Open(self._new_staging(self._transaction(self._next)))
        open_ = self._open
        self._refuse_unwritable(open_)
        self._deadline.progress()
        try:
            self._put(open_, pieces)
        except BaseException as error:
            if open_.staging.error is not None or open_.staging.rows != open_.rows:
                why = open_.staging.fail(error)
                if open_.kept is None and open_.phase is _Phase.OPEN:
                    open_.fail(why)
            raise
        open_.add(pieces, self._most)

    def commit(self) -> int:
        """See :meth:`Writer.commit`. Raises RefusedError where another writer of this id has taken over.

        After an error it may be called again: the transaction keeps its number and is committed once, or the call fails
        again. Until one of them returns, or ``abort()`` does, the transaction may be in the stream or not.
        """
        self._refuse_closed()
        open_ = self._open
        if open_ is None or not open_.rows:
            self.abort()
            return NO_NUMBER
        if open_.phase is _Phase.FAILED:
            assert open_.error is not None
            raise copy.copy(open_.error)
        open_.phase = _Phase.SEALED
        self._deadline.progress()

        def attempt() -> None:
            if open_.staging.rows != open_.rows:  # a write() was interrupted when its rows were staged
                open_.staging.fail(UsageError("a write was interrupted", remedy="Stage the rows again."))
            if open_.staging.error is not None:
                self._stage_again(open_)
            if open_.staging.committed and not open_.asked:
                raise _Final(self._taken(open_))
            open_.staging.finish()
            open_.asked = True
            open_.staging.commit()

        try:
            stamp = self._persist(open_, attempt) or open_.staging.stamp
        except BaseException as error:
            if open_.phase is _Phase.SEALED:
                open_.error = (
                    error
                    if isinstance(error, AeronSparkError)
                    else TransportError(f"commit() was interrupted: {error!r}")
                )
            raise
        return self._done(open_, stamp)

    def abort(self) -> None:
        """See :meth:`Writer.abort`.

        After a ``commit()`` that failed it asks the server: raises RefusedError where the transaction is committed
        (``last`` is its number then), and ConnectError or WaitTimeout where the server does not say; then it may be
        called again.
        """
        open_ = self._open
        if open_ is None:
            return
        if open_.asked and not self._closed:
            self._refuse_committed(open_)
        self._drop(open_)

    def close(self) -> None:
        """See :meth:`Writer.close`. A transaction whose ``commit()`` failed may be in the stream or not."""
        if not self._closed:
            self._closed = True
            self.abort()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.close()
            return
        self.commit()  # where it raises the writer stays open: only commit() or abort() can say what became of the rows
        self.close()

    def accept_loss(self) -> int:
        """Go on with a stream that no longer has transactions of this writer which were acknowledged.

        For a store that was restored from an older copy. Returns the last transaction of this writer that the stream
        has, -1 for none. Rows of the open transaction stay, and it keeps its number; no number is used again.
        """
        self._refuse_closed()
        self._deadline.progress()
        if self._next_run:  # an abort() had no response: the server may know this run, and have fenced the one before
            self._run, self._next_run = self._next_run, ""
        anew = Transaction(self.writer_id, self._run, -1, self._single_use, self._producer)
        last, self._stamp = begin(self._session, self.stream, anew, timeout_s=self._deadline.remaining())
        self._last = last
        self._next = max(self._next, last + 1)
        if self._open is not None:  # its rows are staged anew, under what the server has acknowledged now
            self._open.staging.fail(UsageError("a loss was accepted", remedy="Stage the rows again."))
        return last

    def _transaction(self, number: int) -> Transaction:
        return Transaction(self.writer_id, self._run, number, self._single_use, self._producer, self._last, self._stamp)

    def _transaction_of(self, open_: _Open) -> Transaction:
        """The open transaction. A server that does not know its writer cannot say whether it committed what it sent."""
        found = self._transaction(open_.number)
        return replace(found, replaced_run=self._run) if open_.asked else found

    def _new_staging(self, transaction: Transaction) -> StagedTransaction:
        return StagedTransaction(self._session, self.stream, transaction, self._deadline)

    def _done(self, open_: _Open, stamp: str) -> int:
        self._last, self._stamp, self._next, self._open = open_.number, stamp, open_.number + 1, None
        return open_.number

    def _drop(self, open_: _Open) -> None:
        self._open = None
        if not open_.staging.abort(min(ABORT_SECONDS, self._deadline.seconds)):
            # The server may drop what is staged under this number at any time from now on: the next one has another.
            self._next = open_.number + 1

    def _put(self, open_: _Open, pieces: Sequence[WriteBatch]) -> None:
        done = 0

        def attempt() -> None:
            nonlocal done
            if open_.staging.error is not None:
                self._stage_again(open_, pieces[:done])
            while done < len(pieces):
                open_.staging.append(pieces[done])
                done += 1
            if open_.staging.committed:
                raise _Final(self._taken(open_))

        self._persist(open_, attempt)

    def _persist(self, open_: _Open, attempt: Callable[[], None]) -> str:
        """Make ``attempt`` succeed, again and again while the deadline lasts that the first failure finds.

        Returns at once, with its stamp, where the server has the transaction, whose commit was sent before; else "".
        """
        end: Deadline | None = None
        pause = FIRST_PAUSE
        while True:
            try:
                attempt()
                return ""
            except _Final as final:
                raise final.error from final.error.__cause__
            except StillWorking:  # for as long as a commit may take
                raise
            except (*OUTAGE, RefusedError) as error:
                why: AeronSparkError = error
                if isinstance(error, RefusedError):  # the server is there, and has lost what was staged
                    self._deadline.progress()
            if end is None:
                end = self._session.deadline(self._deadline.remaining(), "the server")
            last, stamp = self._await_server(open_, why, end, pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            if last < open_.number:
                continue
            if open_.asked:
                return stamp
            raise self._taken(open_)

    def _await_server(
        self, open_: _Open, why: AeronSparkError, end: Deadline, pause: float
    ) -> tuple[int, str]:  # fmt: skip
        """Return the writer's last committed transaction, and its stamp, once the server is there; or raise ``why``.

        It may raise a later error. Raises RefusedError where another run has taken over, and where acknowledged
        transactions are no longer in the stream, which no waiting mends.
        """
        while True:
            if self._session.client.closed or not end.remaining():
                raise why
            self._session.sleep(min(pause, end.remaining()))
            pause = min(2 * pause, LONGEST_PAUSE)
            try:
                found = begin(self._session, self.stream, self._transaction_of(open_), timeout_s=end.remaining())
            except OUTAGE as error:
                why = error
            else:
                self._deadline.progress()
                return found

    def _stage_again(self, open_: _Open, more: Sequence[WriteBatch] = ()) -> None:
        """Stage all rows of the transaction again, and ``more``, under the same number."""
        why = open_.staging.error
        assert why is not None
        if open_.kept is None:
            raise _Final(open_.fail(why))
        open_.staging.discard()
        open_.staging = self._new_staging(self._transaction_of(open_))
        try:
            for piece in (*open_.kept, *more):
                open_.staging.append(piece)
        except BaseException as error:
            open_.staging.fail(error)
            raise

    def _refuse_committed(self, open_: _Open) -> None:
        """Make sure that the server will not commit the transaction any more. Raises RefusedError where it did."""
        self._deadline.progress()
        # The same run again where the response was lost: two of them could fence each other.
        self._next_run = self._next_run or uuid.uuid4().hex
        fence = replace(self._transaction(-1), run=self._next_run, replaced_run=self._run)
        _, stamp = begin(self._session, self.stream, fence, timeout_s=self._deadline.remaining())
        last = last_committed(self._session, self.stream, fence, timeout_s=self._deadline.remaining()).transaction
        self._run, self._next_run = self._next_run, ""
        if last >= open_.number:
            self._done(open_, stamp)
            raise RefusedError(
                f"transaction {open_.number} of writer {self.writer_id!r} is in the stream: its commit() failed here, "
                "and succeeded on the server",
                remedy="Go on with the next transaction.",
            )

    def _taken(self, open_: _Open) -> RefusedError:
        return RefusedError(
            f"transaction {open_.number} of writer {self.writer_id!r} is committed, but not by this writer",
            remedy="Give each writer an id of its own, or make another writer, which goes on after it.",
        )

    def _refuse_unwritable(self, open_: _Open) -> None:
        if open_.phase is _Phase.FAILED:
            assert open_.error is not None
            raise copy.copy(open_.error)
        if open_.phase is _Phase.SEALED:
            error = open_.error or UsageError("it has not returned")
            refused = error.with_what(
                f"transaction {open_.number} takes no more rows, as its commit() failed: {error.what}"
            )
            refused.remedy = "Call commit() again, or abort()."
            raise refused

    def _refuse_closed(self) -> None:
        if self._closed:
            raise UsageError("the writer is closed", remedy="Make another one.")

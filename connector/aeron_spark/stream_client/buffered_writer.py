"""A writer whose transactions go to a local folder first, and from there to the server whenever it is there.

A transaction is on this machine's disk when ``commit`` returns. A thread sends them in order, each under a number that
is fixed before it is sent for the first time: the server takes it once, however often it comes, also after a crash of
this program.

Where the server's store was restored from an older copy, transactions that it had acknowledged are missing there. The
folder knows what was acknowledged. Those that it still has are sent again; without the rest nothing is sent until the
program accepts the loss.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
import uuid
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from aeron_spark.connection.connection import Connection
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    DataFormatError,
    IdentityError,
    OptionError,
    RefusedError,
    SessionLost,
    TransportError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.log.epochs import DIVERGED
from aeron_spark.log.writing import Transaction
from aeron_spark.stream_client.buffer_folder import (
    ALIGNMENT,
    HEAD,
    TRAILER,
    BufferedTransaction,
    BufferFolder,
    TransactionOutcome,
)
from aeron_spark.stream_client.session import SessionClient, StreamSession
from aeron_spark.stream_client.staging import SEND_TIMEOUT_S, StagedTransaction
from aeron_spark.stream_client.transactions import begin, first_lost, last_committed
from aeron_spark.stream_client.write_batches import Data, WriteBatch, check_payload, write_batches_of
from aeron_spark.stream_client.writer import FIRST_PAUSE, Writer
from aeron_spark.wire.arrow import encoded_size

LOG: Final = logging.getLogger("aeron_spark.remote")
BUFFER_BYTES: Final = 1 << 30
WAIT_SECONDS: Final = 60.0  # for room in the buffer
CLOSE_SECONDS: Final = 5.0  # for what is unsent when the writer closes while the server is there
LONGEST_PAUSE: Final = 5.0
LOOK: Final = 0.1  # seconds between two looks whether there is a connection
AWAY_SECONDS: Final = 1.0  # without a connection, before that is a trouble


class BufferClient(SessionClient, Protocol):
    """The client, as far as a buffer needs it."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""

    def begin_connecting(self) -> Future[Connection]:
        """Connect when that is possible; what comes of it."""


class BufferedWriter(Writer):
    """Writes to ``stream`` through ``folder``; ``Client.writer`` makes it. Needs no server to begin.

    One folder serves one stream and one ``writer_id`` (without one it makes its own), and one process at a time; its
    unsent transactions have at most ``most_bytes``. ``timeout`` is how long a write waits for room there, in seconds.
    Files of transactions that were sent stay for ``keep_seconds``, in case the server is restored from an older copy.
    Raises UsageError where another process uses the folder, OptionError where it is another stream's or writer's.
    """

    def __init__(
        self, client: BufferClient, session: StreamSession, stream: str, folder: str | Path, *,
        writer_id: str | None = None, partition: int | None = None, payload: str = "auto",
        most_bytes: int = BUFFER_BYTES, timeout: float = WAIT_SECONDS, keep_seconds: float = 0.0,
    ) -> None:  # fmt: skip
        self.stream = stream
        self._payload = check_payload(payload)
        if partition is not None and partition < 0:
            raise OptionError(f"there is no partition {partition}", remedy="They are numbered from 0.")
        self._partition = partition
        self._most = most_bytes
        self._timeout = timeout
        self._unsent = BufferFolder(Path(folder), stream, writer_id or "", keep_seconds=keep_seconds)
        self.writer_id = self._unsent.writer
        self._client = client
        self._session = session
        self._run = uuid.uuid4().hex
        self._deadline = session.deadline(SEND_TIMEOUT_S, f"the server of stream {stream!r}")  # of sending
        self._entered = False
        self._changed = threading.Condition()  # guards what follows, and the folder's files
        self._closed = False
        self._trouble: AeronSparkError | None = None
        self._failure: AeronSparkError | None = None
        self._lost: frozenset[int] = frozenset()  # acknowledged, no longer in the stream, and not kept here
        self._loss_accepted = False
        self._sender = threading.Thread(target=self._run_sender, name=f"aeron-spark-buffer-{stream}", daemon=True)
        self._sender.start()

    @property
    def unsent(self) -> int:
        """How many committed transactions the server does not have yet."""
        with self._changed:
            return len(self._unsent)

    @property
    def last(self) -> int:
        """The number of the last transaction that is committed to the folder, also by an earlier process; -1: none.

        Numbers are the folder's own: they count up from 0. A program that knows the number of what it was committing
        when it died learns from this whether that is committed: its number was ``last + 1`` before.
        """
        with self._changed:
            return self._unsent.last

    @property
    def acknowledged(self) -> int:
        """The number of the last transaction that the server has acknowledged, with all before it; -1: none."""
        with self._changed:
            return self._unsent.acknowledged

    def outcome(self, number: int) -> TransactionOutcome:
        """Return what became of the transaction of a number, also after a restart of the program.

        ``acknowledged``: the server has it. ``buffered``: it is in the folder, and will be sent. ``absent``: it was not
        committed, or its file was taken away before it was sent. ``diverged``: the server acknowledged it, and was then
        restored from a copy without it.
        """
        with self._changed:
            return "diverged" if number in self._lost else self._unsent.outcome(number)

    @property
    def trouble(self) -> AeronSparkError | None:
        """Why nothing is being sent now; None where it is, or where there is nothing to send.

        A RefusedError with the reason ``diverged`` says that the server was restored from an older copy, see
        :meth:`accept_loss`.
        """
        return self._failure or self._trouble

    def write(self, data: Data, *, partition: int | None = None) -> None:
        """See :meth:`Writer.write`. Raises WaitTimeout where the buffer stays full, and what ended sending for good.

        Whatever it raises, the transaction is as it was before; where the disk lost its rows too, every further call
        says so until ``abort()``.
        """
        at = self._partition if partition is None else partition
        pieces = list(write_batches_of(data, self._payload, at))
        with self._changed:
            mark = self._unsent.mark()
            try:
                for piece in pieces:
                    self._refuse_ended()
                    self._await_room(piece)
                    self._unsent.add(piece)
            except BaseException:
                self._unsent.back_to(mark)
                raise

    def commit(self) -> int:
        """See :meth:`Writer.commit`: the transaction is on this machine's disk then, and will be sent.

        Raises TransportError where the disk is full or fails. Called again it either commits the same rows or raises
        again, until ``abort()``. ``last`` says whether a transaction is committed whose commit did not return.
        """
        with self._changed:
            self._refuse_ended()
            number = self._unsent.commit()
            self._changed.notify_all()
            return number

    def abort(self) -> None:
        """See :meth:`Writer.abort`; what was committed is sent all the same.

        Raises TransportError where the file of a transaction whose commit failed cannot be removed.
        """
        with self._changed:
            self._unsent.drop()

    def flush(self, timeout: float = WAIT_SECONDS) -> None:
        """Wait until the server has every committed transaction.

        Raises WaitTimeout after so many seconds, and why; RefusedError, reason ``diverged``, see :meth:`accept_loss`.
        """
        with self._changed:
            done = self._changed.wait_for(lambda: not len(self._unsent) or self._ended or self._awaits_program, timeout)
            if len(self._unsent):
                self._refuse_ended()
                if self._awaits_program and self._trouble is not None:
                    raise copy.copy(self._trouble)
            if not done:
                raise WaitTimeout(
                    f"waited {timeout:g} s for {self._left()} to be sent{self._why()}",
                    remedy="They stay there, and are sent when the server takes them.",
                )

    def accept_loss(self) -> None:
        """Send on, without transactions that the server acknowledged and no longer has.

        For a server that was restored from an older copy, which is noticed when the next transaction is sent: then
        ``trouble`` has the reason ``diverged``, ``outcome`` of the lost ones is ``diverged``, and nothing is sent. What
        is committed meanwhile waits in the folder. Does nothing where ``trouble`` is not that.
        """
        with self._changed:
            self._loss_accepted = bool(self._lost)
            self._changed.notify_all()

    def close(self) -> None:
        """See :meth:`Writer.close`. While the server is there it waits a few seconds for what is unsent.

        The rest stays in the folder, for whoever opens it next.
        """
        with self._changed:
            if self._closed:
                return
            with suppress(TransportError):
                self._unsent.drop()
            self._changed.wait_for(lambda: not len(self._unsent) or self.trouble is not None, CLOSE_SECONDS)
            self._closed = True
            self._changed.notify_all()
        self._sender.join(CLOSE_SECONDS)
        if not self._sender.is_alive():  # else it lets the folder go itself, once its question is answered
            self._unsent.close()

    @property
    def _awaits_program(self) -> bool:
        """Whether nothing is sent until the program accepts a loss."""
        return bool(self._lost) and not self._loss_accepted

    @property
    def _ended(self) -> bool:
        return self._closed or self._failure is not None

    def _refuse_ended(self) -> None:
        if self._closed:
            raise UsageError("the writer is closed", remedy="Make another one.")
        if self._failure is not None:
            raise self._failure.with_what(f"{self._left()} cannot be sent: {self._failure.what}")

    def _left(self) -> str:
        count = len(self._unsent)
        return f"{count} transaction{'' if count == 1 else 's'} of the buffer {self._unsent.folder}"

    def _why(self) -> str:
        return f" ({self._trouble.what})" if self._trouble is not None else ""

    def _await_room(self, piece: WriteBatch) -> None:
        """Wait until a piece fits; the lock is held."""
        body = encoded_size(piece.rows)
        size = HEAD.size + body + -body % ALIGNMENT + TRAILER.size
        if self._unsent.drafted + size > self._most:
            raise OptionError(
                f"a transaction of {self._unsent.drafted + size:,} bytes is larger than the buffer "
                f"{self._unsent.folder}, which may have {self._most:,}",
                remedy="Commit more often, or raise buffer_bytes.",
            )
        if not self._changed.wait_for(lambda: self._ended or self._unsent.size + size <= self._most, self._timeout):
            raise WaitTimeout(
                f"waited {self._timeout:g} s for room in the buffer {self._unsent.folder}: {self._unsent.size:,} of "
                f"{self._most:,} bytes wait to be sent{self._why()}",
                remedy="Look at the server, raise buffer_bytes, or write less.",
            )
        self._refuse_ended()

    # What follows is for the sender's thread.

    def _run_sender(self) -> None:
        try:
            self._send_all()
        finally:
            if self._closed:
                self._unsent.close()

    def _send_all(self) -> None:
        pause = FIRST_PAUSE
        while (one := self._next()) is not None:
            try:
                if not self._reach():
                    return
                if not self._entered:
                    self._enter(one)
                self._send(one)
            except (DataFormatError, IdentityError) as error:
                self._fail(error)
            except AeronSparkError as error:
                try:
                    if error.reason == DIVERGED:
                        self._resolve_loss(error)
                        continue
                except AeronSparkError as later:
                    error = later
                self._wait(error, pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            except Exception as error:  # of the disk, say: the program hears of it when it writes on
                self._fail(TransportError(f"{self._unsent.folder}: {error!r}", remedy="See to its disk."))
            else:
                pause = FIRST_PAUSE

    def _reach(self) -> bool:
        """Wait until the server is there; False when there is no more sending. Raises why it will not be."""
        trying = self._client.begin_connecting()
        away = time.monotonic() + AWAY_SECONDS
        while not self._client.connected:
            if trying.done() and (error := trying.exception()) is not None:
                raise error
            with self._changed:
                if self._changed.wait_for(lambda: self._ended, LOOK):
                    return False
                if time.monotonic() >= away and self._trouble is None:
                    self._trouble = ConnectError("the server does not answer", remedy="Look whether it runs.")
                    self._changed.notify_all()
        return True

    def _wait(self, error: AeronSparkError, seconds: float) -> None:
        with self._changed:
            self._trouble = error
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ended, seconds)

    def _next(self) -> BufferedTransaction | None:
        """Wait for a transaction; None when there is no more sending."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or len(self._unsent))
            return None if self._ended else self._unsent.first()

    def _enter(self, first: BufferedTransaction) -> None:
        """Fence off earlier runs, and see that nobody else used the writer's numbers."""
        try:
            last, _ = begin(self._session, self.stream, self._transaction(-1))
            mine = last_committed(self._session, self.stream, self._transaction(-1)).transaction
        except SessionLost:
            raise
        except RefusedError as error:
            if not error.retriable and error.reason != DIVERGED:
                self._fail(error)
            raise
        base = self._unsent.base
        if base is None:
            with self._changed:
                self._unsent.begin_at(last + 1)
        elif last >= base + first.number + first.begun or mine < last == base + first.number:
            raise self._taken(first, last)
        self._entered = True

    def _resolve_loss(self, error: AeronSparkError) -> None:
        """Send kept transactions again that the restored server lacks; for others wait until the program accepts."""
        base, confirmed = self._unsent.base, self._unsent.confirmed
        assert base is not None
        assert confirmed is not None
        while True:
            found = first_lost(self._session, self.stream, self.writer_id, *confirmed)
            if found is None:  # the server was restored once more, from a copy that has it all
                self._loss_is_over()
                return
            first = max(0, found - base)
            lost = self._unsent.not_kept(first)
            if not self._lost.issuperset(lost):
                self._loss_accepted = False  # another loss than the one that was accepted
            if not lost or self._loss_accepted:
                break
            if not self._await_acceptance(lost, error):
                return
        fresh = replace(self._transaction(-1), acknowledged=-1, stamp="")
        last, stamp = begin(self._session, self.stream, fresh)
        with self._changed:
            again = self._unsent.go_back(first, last, stamp)
            LOG.warning(
                "stream %r was restored from an older copy: buffer %s sends %d transactions again and gives up %d",
                self.stream, self._unsent.folder, again, len(lost),
            )  # fmt: skip
        self._loss_is_over()

    def _loss_is_over(self) -> None:
        with self._changed:
            self._lost, self._loss_accepted, self._trouble, self._entered = frozenset(), False, None, False
            self._changed.notify_all()

    def _await_acceptance(self, lost: list[int], error: AeronSparkError) -> bool:
        """Send nothing until the program accepts this loss; False where there is no more sending."""
        one = len(lost) == 1
        which = f"transaction {lost[0]}" if one else f"transactions {lost[0]} to {lost[-1]}"
        trouble = error.with_what(
            f"{which} of the buffer {self._unsent.folder} {'was' if one else 'were'} acknowledged and "
            f"{'is' if one else 'are'} no longer in the stream"
        )
        trouble.remedy = (
            "The server's store was restored from an older copy. accept_loss() sends on without them; keep_sent= keeps "
            "sent transactions, which are then sent again."
        )
        with self._changed:
            self._lost, self._trouble = frozenset(lost), trouble
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ended or self._loss_accepted)
            return not self._ended

    def _taken(self, one: BufferedTransaction, last: int) -> RefusedError:
        """Send no more, as the server has another transaction of this number; return what says so."""
        assert self._unsent.base is not None
        failure = RefusedError(
            f"writer {self.writer_id!r} is at transaction {last} on the server, and the buffer {self._unsent.folder} "
            f"at {self._unsent.base + one.number}: another writer has used this id",
            remedy="Give each buffer a writer id of its own.",
        )
        self._fail(failure)
        return failure

    def _send(self, one: BufferedTransaction) -> None:
        base = self._unsent.base
        assert base is not None
        self._deadline.progress()
        staging = StagedTransaction(self._session, self.stream, self._transaction(base + one.number), self._deadline)
        try:
            for piece in self._unsent.read(one):
                staging.append(piece)
            if staging.committed and not one.begun:
                raise self._taken(one, base + one.number)
            staging.finish()
            with self._changed:
                begun = self._unsent.begin(one)
            self._deadline.progress()
            staging.commit()
        except BaseException as error:
            staging.discard()
            if isinstance(error, RefusedError) and not isinstance(error, SessionLost):
                self._entered = False  # entering says whether another run has taken over
            raise
        with self._changed:
            self._unsent.sent(begun, staging.stamp)
            self._trouble = None
            self._changed.notify_all()

    def _transaction(self, number: int) -> Transaction:
        acknowledged, stamp = self._unsent.confirmed or (-1, "")
        return Transaction(
            self.writer_id, self._run, number, producer=self._unsent.author, acknowledged=acknowledged, stamp=stamp
        )

    def _fail(self, error: AeronSparkError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

"""A writer that commits transactions to a buffer folder, and sends them from there while the server can be reached.

A transaction is on this machine's disk when ``commit`` returns. A thread sends the transactions in order. Each has a
number that is fixed before it is sent, so that the server commits it once, even if it is sent again after a crash.

If the server's store is restored from an older copy, it lacks acknowledged transactions. The folder has the numbers
that were acknowledged: the writer sends again those whose files it still has. If others are missing, it sends nothing
until the program accepts the loss.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakValueDictionary

import pyarrow as pa

from aeron_spark.endpoint.connection import Connection
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    DataFormatError,
    EndedError,
    IdentityError,
    OptionError,
    RefusedError,
    SessionLost,
    TransportError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.log.epochs import DIVERGED
from aeron_spark.stream_client.buffer_folder import (
    ALIGNMENT,
    HEAD,
    TRAILER,
    BufferedTransaction,
    BufferFolder,
    TransactionOutcome,
)
from aeron_spark.stream_client.row_input import RowInput, Stage, WriteBatch, check_payload
from aeron_spark.stream_client.session import SessionClient, StreamSession
from aeron_spark.stream_client.staging import (
    SEND_TIMEOUT_S,
    KnownStream,
    StagedTransaction,
    begin,
    first_lost,
    last_committed,
)
from aeron_spark.stream_client.writer import FIRST_PAUSE_S, Writer, WriterKeywords
from aeron_spark.wire.arrow import encoded_size
from aeron_spark.wire.field_bounds import check_token
from aeron_spark.wire.stream_requests import NEXT_NUMBER, Transaction

LOG: Final = logging.getLogger("aeron_spark.remote")
MAX_BYTES: Final = 1 << 30
SPACE_TIMEOUT_S: Final = 60.0  # of a wait for space in the folder, and of flush()
CLOSE_TIMEOUT_S: Final = 5.0  # for unsent transactions when the writer closes and the server can be reached
FENCED: Final = "fenced"  # reason of the server: another run has taken the writer id over
SENDER_END_TIMEOUT_S: Final = 1.0  # for the sender's thread to end; a request without a response keeps it for longer
MAX_PAUSE_S: Final = 5.0  # an outage may last for hours, and its end is noticed so late
CONNECTION_POLL_INTERVAL_S: Final = 0.1  # a new connection is used so late, and a look costs nothing
FORMER_POLL_INTERVAL_S: Final = 0.05  # between two checks whether the folder's former sender has ended
CONNECTION_GRACE_S: Final = 1.0  # a shorter time without a connection is not reported in ``trouble``


_senders: Final[WeakValueDictionary[Path, threading.Thread]] = WeakValueDictionary()  # by folder; the latest of each


class BufferClient(SessionClient, Protocol):
    """The part of a client that a buffered writer uses."""

    @property
    def connected(self) -> bool:
        """Whether the client is connected now."""

    def begin_connecting(self) -> Future[Connection]:
        """Start to connect; the future ends with the connection, or with the reason that prevents it."""


class BufferKeywords(WriterKeywords, total=False):
    """The keywords of ``Client.writer`` with a buffer."""

    buffer_bytes: int
    """Of the unsent transactions, 1 GiB by default."""
    keep_sent: float | str
    """How long sent transactions stay, in seconds or as ``"24h"``; 0 by default."""


class BufferedWriter(Writer):
    """Writes to ``stream`` through the buffer folder ``folder``; ``Client.writer`` makes it. It can start offline.

    One folder serves one stream and one ``writer_id`` (without one it makes its own), and one writer at a time. Its
    unsent transactions have at most ``max_bytes``. ``timeout`` bounds a write's wait for space, in seconds. Files of
    sent transactions stay for ``keep_seconds``, in case the server is restored from an older copy. With
    ``evolve_schema`` its rows may add columns to a strict schema. A folder of one of the stream's ``former_names``
    becomes one of ``stream``. Raises UsageError if another writer uses the folder, with its process, OptionError if it
    belongs to another stream or writer.

    ``write`` also raises WaitTimeout if the folder stays full, and the error that stopped sending. After an error the
    transaction is as it was before. If the disk lost its rows as well, each further call raises that error until
    ``abort()``. The folder keeps the ``schema`` of the stream: a writer that starts offline takes it from there.
    """

    def __init__(
        self,
        client: BufferClient,
        session: StreamSession,
        stream: str,
        folder: str | Path,
        *,
        writer_id: str | None = None,
        partition: int | None = None,
        payload: str = "auto",
        schema: pa.Schema | None = None,
        max_bytes: int = MAX_BYTES,
        timeout: float = SPACE_TIMEOUT_S,
        keep_seconds: float = 0.0,
        evolve_schema: bool = False,
        former_names: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.stream = stream
        self._evolve_schema = evolve_schema
        check_payload(payload)
        if partition is not None and partition < 0:
            raise OptionError(f"partition {partition} does not exist", remedy="Partitions are numbered from 0.")
        self._partition = partition
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._folder = BufferFolder(
            Path(folder), stream, writer_id or "", keep_seconds=keep_seconds, former_names=former_names
        )
        self.writer_id = self._folder.writer
        self._rows = RowInput(payload, schema or self._folder.schema)
        self._client = client
        self._session = session
        self._known = KnownStream(session, stream)  # of the sender's thread
        self._run = uuid.uuid4().hex
        self._deadline = session.deadline(SEND_TIMEOUT_S, f"the server of stream {stream!r}")  # of the sender's thread
        self._has_begun = False  # whether the server has fenced earlier runs
        self._is_requesting = False  # whether the sender may have a request under way
        self._changed = threading.Condition()  # guards all below, and the folder's files
        self._is_closing = False  # the program may not write any more
        self._closed = False  # the folder may belong to another writer
        self._trouble: AeronSparkError | None = None
        self._failure: AeronSparkError | None = None
        self._lost: frozenset[int] = frozenset()  # acknowledged, missing in the stream, and without a file
        self._loss_accepted = False
        self._sender = threading.Thread(target=self._send_all, name=f"aeron-spark-buffer-{stream}", daemon=True)
        place = self._folder.path.resolve()
        self._former_sender, _senders[place] = _senders.get(place), self._sender
        self._sender.start()

    @property
    def unsent(self) -> int:
        """The number of committed transactions that the server has not acknowledged."""
        with self._changed:
            return len(self._folder)

    @property
    def last(self) -> int:
        """The number of the last transaction in the folder, also of an earlier process; -1 before the first one.

        Numbers count the folder's transactions from 0. After a crash in ``commit()`` it gives the outcome: the
        transaction had the number ``last + 1`` before.
        """
        with self._changed:
            return self._folder.last

    @property
    def last_token(self) -> str:
        """The token of the transaction ``last``, "" if it has none, also of an earlier process.

        A program that commits its position in a source as the token continues there after a restart. Raises
        DataFormatError if the disk has damaged the file of that transaction.
        """
        with self._changed:
            return self._folder.last_token

    @property
    def acknowledged(self) -> int:
        """The number up to which the server has acknowledged all transactions; -1 before the first one."""
        with self._changed:
            return self._folder.acknowledged

    def outcome(self, number: int) -> TransactionOutcome:
        """Return the outcome of a transaction by its number, also after a restart of the program.

        ``acknowledged``: the server has it. ``buffered``: it is in the folder, and will be sent. ``absent``: it was not
        committed, or its file was removed before it was sent. ``diverged``: the server acknowledged it, and was then
        restored from a copy without it.
        """
        with self._changed:
            return "diverged" if number in self._lost else self._folder.outcome(number)

    @property
    def trouble(self) -> AeronSparkError | None:
        """The reason why nothing is sent now; None while transactions are sent, or if there is nothing to send.

        A RefusedError with the reason ``diverged`` means that the server was restored from an older copy, see
        :meth:`accept_loss`.
        """
        return self._failure or self._trouble

    def _add(self, partition: int | None, add: Callable[[int | None, Stage], None]) -> None:
        with self._changed:
            self._refuse_ended()
        add(self._partition if partition is None else partition, self._add_batches)

    def _add_batches(self, batches: Sequence[WriteBatch]) -> None:
        """Write batches to the transaction's file, all or none."""
        with self._changed:
            mark = self._folder.mark()
            try:
                for batch in batches:
                    self._refuse_ended()
                    self._await_space(batch)
                    self._folder.add(batch)
            except BaseException:
                self._folder.truncate_draft(mark)
                raise

    def commit(self, token: str = "") -> int:
        """See :meth:`Writer.commit`: the transaction is on this machine's disk then, and will be sent.

        Raises TransportError if the disk is full or fails. A further call commits the same rows or raises again, until
        ``abort()``. After a commit that did not return, ``last`` and ``last_token`` give the outcome. Raises UsageError
        for a token that is too long.
        """
        with self._calls:
            return self._commit(token)

    def _commit(self, token: str) -> int:
        self._rows.flush(self._add_batches)
        with self._changed:
            self._refuse_ended()
            check_token(self.writer_id, self._folder.last + 1, token)
            former_schema = self._folder.schema
            self._folder.keep_schema(self._rows.arrow_schema or former_schema)
            try:
                number = self._folder.commit(token)
            except BaseException:  # the schema of a transaction that is aborted then does not count
                with suppress(TransportError):
                    self._folder.keep_schema(former_schema)
                raise
            self._rows.commit()
            self._changed.notify_all()
            return number

    def abort(self) -> None:
        """See :meth:`Writer.abort`; committed transactions are sent all the same.

        Raises TransportError if the file of a transaction whose commit failed cannot be removed.
        """
        with self._calls, self._changed:
            self._folder.drop()
            self._rows.abort()

    def flush(self, timeout: float = SPACE_TIMEOUT_S) -> None:
        """Wait until the server has acknowledged every committed transaction.

        Raises WaitTimeout after ``timeout`` seconds, with the reason; RefusedError with the reason ``diverged``, see
        :meth:`accept_loss`.
        """
        with self._changed:
            is_done = self._changed.wait_for(
                lambda: not len(self._folder) or self._ended or self._awaits_program, timeout
            )
            if len(self._folder):
                self._refuse_ended()
                if self._awaits_program and self._trouble is not None:
                    raise copy.copy(self._trouble)
            if not is_done:
                raise WaitTimeout(
                    f"waited {timeout:g} s for {self._unsent_text()} to be sent{self._trouble_text()}",
                    remedy="They stay in the folder, and are sent when the server takes them.",
                )

    def accept_loss(self) -> None:
        """Continue to send, without the transactions that the server acknowledged and has lost.

        Call it after the server was restored from an older copy: the writer notices this with the next transaction.
        Then ``trouble`` has the reason ``diverged``, the ``outcome`` of the lost transactions is ``diverged``, and
        nothing is sent; new transactions wait in the folder. Without such a loss it does nothing.
        """
        with self._changed:
            self._loss_accepted = bool(self._lost)
            self._changed.notify_all()

    def close(self) -> None:
        """See :meth:`Writer.close`. While the server can be reached, it waits a few seconds for unsent transactions.

        A call of another thread that waits for room raises UsageError. The next writer that opens the folder sends the
        other transactions. It can open the folder when this call returns, also while the server does not respond.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        with self._calls, self._changed:
            if self._closed:
                return
            self._rows.abort()
            with suppress(TransportError):
                self._folder.drop()
            self._changed.wait_for(lambda: not len(self._folder) or self.trouble is not None, CLOSE_TIMEOUT_S)
            self._closed = True
            if self._is_requesting:
                self._folder.note_late_request()
            self._folder.close()
            self._changed.notify_all()
        self._sender.join(SENDER_END_TIMEOUT_S)

    @property
    def _awaits_program(self) -> bool:
        """Whether nothing is sent until the program accepts a loss."""
        return bool(self._lost) and not self._loss_accepted

    @property
    def _ended(self) -> bool:
        return self._closed or self._failure is not None

    def _refuse_ended(self) -> None:
        if self._is_closing:
            raise UsageError("the writer is closed", remedy="Make another one.")
        if self._failure is not None:
            raise self._failure.with_what(f"{self._unsent_text()} cannot be sent: {self._failure.what}")

    def _unsent_text(self) -> str:
        count = len(self._folder)
        return f"{count} transaction{'' if count == 1 else 's'} of the buffer {self._folder.path}"

    def _trouble_text(self) -> str:
        return f" ({self._trouble.what})" if self._trouble is not None else ""

    def _await_space(self, batch: WriteBatch) -> None:
        """Wait until a batch fits into the folder; the caller holds the lock."""
        folder, body = self._folder, encoded_size(batch.rows)
        size = HEAD.size + body + -body % ALIGNMENT + TRAILER.size
        if folder.draft_bytes + size > self._max_bytes:
            raise OptionError(
                f"a transaction of {folder.draft_bytes + size:,} bytes is larger than the buffer {folder.path}, "
                f"which may have {self._max_bytes:,}",
                remedy="Commit more often, or raise buffer_bytes.",
            )
        if not self._changed.wait_for(
            lambda: self._is_closing or self._ended or folder.size_bytes + size <= self._max_bytes, self._timeout
        ):
            raise WaitTimeout(
                f"waited {self._timeout:g} s for room in the buffer {folder.path}: {folder.size_bytes:,} of "
                f"{self._max_bytes:,} bytes wait to be sent{self._trouble_text()}",
                remedy="Check that the server runs, raise buffer_bytes, or write less.",
            )
        self._refuse_ended()

    # The methods below run on the sender's thread.

    @contextmanager
    def _own_folder(self) -> Iterator[BufferFolder]:
        """Give the folder to change its files. Raises EndedError once the writer is closed: another one may use it."""
        with self._changed:
            if self._closed:
                raise EndedError("the writer was closed during a request", remedy="Make another one.")
            yield self._folder

    def _await_former_sender(self) -> None:
        """Wait until the folder's former writer in this process has no request under way: it would fence this one."""
        former, self._former_sender = self._former_sender, None
        while former is not None and former.is_alive():
            with self._changed:
                if self._changed.wait_for(lambda: self._ended, FORMER_POLL_INTERVAL_S):
                    return

    def _send_all(self) -> None:
        self._await_former_sender()
        pause_s = FIRST_PAUSE_S
        while (transaction := self._next()) is not None:
            try:
                if not self._await_connection():
                    return
                self._is_requesting = True
                if not self._has_begun:
                    self._begin(transaction)
                self._send(transaction)
            except (DataFormatError, IdentityError) as error:
                self._fail(error)
            except AeronSparkError as error:
                try:
                    if error.reason == DIVERGED:
                        self._resolve_loss(error)
                        continue
                except AeronSparkError as later:
                    error = later
                self._pause(error, pause_s)
                pause_s = min(2 * pause_s, MAX_PAUSE_S)
            except Exception as error:  # for example of the disk: the program's next write raises it
                self._fail(TransportError(f"{self._folder.path}: {error!r}", remedy="Check its disk."))
            else:
                pause_s = FIRST_PAUSE_S
            finally:
                self._is_requesting = False

    def _await_connection(self) -> bool:
        """Wait until the client is connected; return False if the writer has ended. Raises why it cannot connect."""
        connecting = self._client.begin_connecting()
        grace_end = time.monotonic() + CONNECTION_GRACE_S
        while not self._client.connected:
            if connecting.done() and (error := connecting.exception()) is not None:
                raise error
            with self._changed:
                if self._changed.wait_for(lambda: self._ended, CONNECTION_POLL_INTERVAL_S):
                    return False
                if time.monotonic() >= grace_end and self._trouble is None:
                    self._trouble = ConnectError("the server does not respond", remedy="Check that it runs.")
                    self._changed.notify_all()
        return True

    def _pause(self, error: AeronSparkError, seconds: float) -> None:
        """Report ``error`` as the trouble, and wait before the next attempt."""
        with self._changed:
            self._trouble = error
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ended, seconds)

    def _next(self) -> BufferedTransaction | None:
        """Wait for a transaction to send; return None if the writer has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or len(self._folder))
            return None if self._ended else self._folder.first()

    def _begin(self, first: BufferedTransaction) -> None:
        """Fence earlier runs, and check that no other program has used the writer's numbers."""
        try:
            last = begin(self._session, self.stream, self._transaction(NEXT_NUMBER)).last
            own_last = last_committed(self._session, self.stream, self._transaction(NEXT_NUMBER)).transaction
        except SessionLost:
            raise
        except RefusedError as error:
            if error.reason == FENCED and self._folder.may_be_fenced:
                self._run = uuid.uuid4().hex  # the folder's former writer has ended: begin again
            elif not error.retriable and error.reason != DIVERGED:
                self._fail(error)
            raise
        base = self._folder.base
        if base is None:
            with self._own_folder() as folder:
                folder.set_base(last + 1)
        else:
            with self._changed:
                last_own = base + self._folder.last_sending
            if last > last_own or own_last < last >= base + first.number:
                raise self._foreign_use(first, last)
        self._has_begun = True

    def _resolve_loss(self, error: AeronSparkError) -> None:
        """Send kept transactions again that the restored server lacks; for others wait until the program accepts."""
        base, confirmed = self._folder.base, self._folder.confirmed
        assert base is not None
        assert confirmed is not None
        while True:
            found = first_lost(self._session, self.stream, self.writer_id, *confirmed)
            if found is None:  # the server was restored again, from a copy that has all of them
                self._end_loss()
                return
            first = max(0, found - base)
            lost = self._folder.missing_from(first)
            if not self._lost.issuperset(lost):
                self._loss_accepted = False  # the program has accepted another loss
            if not lost or self._loss_accepted:
                break
            if not self._await_acceptance(lost, error):
                return
        after_restore = Transaction(self.writer_id, self._run, NEXT_NUMBER, producer=self._folder.producer)
        begun = begin(self._session, self.stream, after_restore)
        with self._own_folder() as folder:
            again = folder.send_again_from(first, begun.last, begun.stamp)
            LOG.warning(
                "stream %r was restored from an older copy: buffer %s sends %d transactions again and gives up %d",
                self.stream,
                folder.path,
                again,
                len(lost),
            )
        self._end_loss()

    def _end_loss(self) -> None:
        with self._changed:
            self._lost, self._loss_accepted, self._trouble, self._has_begun = frozenset(), False, None, False
            self._changed.notify_all()

    def _await_acceptance(self, lost: list[int], error: AeronSparkError) -> bool:
        """Wait until the program accepts this loss; return False if the writer has ended."""
        is_one = len(lost) == 1
        numbers = f"transaction {lost[0]}" if is_one else f"transactions {lost[0]} to {lost[-1]}"
        trouble = error.with_what(
            f"{numbers} of the buffer {self._folder.path} {'was' if is_one else 'were'} acknowledged and "
            f"{'is' if is_one else 'are'} no longer in the stream"
        )
        trouble.remedy = (
            "The server's store was restored from an older copy. Call accept_loss() to send on without them. With "
            "keep_sent= the buffer keeps sent transactions, and sends them again after a restore."
        )
        with self._changed:
            self._lost, self._trouble = frozenset(lost), trouble
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ended or self._loss_accepted)
            return not self._ended

    def _foreign_use(self, transaction: BufferedTransaction, last: int) -> RefusedError:
        """Stop sending because the server has another program's transaction of this number; return the error."""
        assert self._folder.base is not None
        failure = RefusedError(
            f"writer {self.writer_id!r} is at transaction {last} on the server, and the buffer {self._folder.path} "
            f"at {self._folder.base + transaction.number}: another writer has used this id",
            remedy="Give each buffer its own writer id.",
        )
        self._fail(failure)
        return failure

    def _send(self, transaction: BufferedTransaction) -> None:
        base = self._folder.base
        assert base is not None
        number = base + transaction.number
        self._deadline.progress()
        staged = StagedTransaction(
            self._session,
            self._known,
            self._transaction(number),
            self._deadline,
            has_begun=True,
            evolve_schema=self._evolve_schema,
        )
        try:
            rows = self._folder.read(transaction)
            for batch in rows:
                staged.append(batch)
            if staged.committed and not transaction.is_sending:
                raise self._foreign_use(transaction, number)
            staged.finish()
            with self._own_folder() as folder:
                sending = folder.mark_sending(transaction)
            self._deadline.progress()
            staged.commit(rows.token)
        except BaseException as error:
            staged.discard()
            if isinstance(error, RefusedError) and not isinstance(error, SessionLost):
                self._has_begun = False  # the next begin request tells whether another run has taken over
            raise
        with self._own_folder() as folder:
            folder.mark_sent(sending, staged.stamp, rows.token)
            self._trouble = None
            self._changed.notify_all()

    def _transaction(self, number: int) -> Transaction:
        acknowledged, stamp = self._folder.confirmed or (-1, "")
        return Transaction(
            self.writer_id, self._run, number, producer=self._folder.producer, acknowledged=acknowledged, stamp=stamp
        )

    def _fail(self, error: AeronSparkError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

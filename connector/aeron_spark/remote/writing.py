"""Writing to a server's stream by transactions, as a program does: rows are staged as they come, a commit shows them.

A transaction becomes visible as a whole, once. Where an outage takes its stages, its rows are staged anew under the
same number: they are kept here until the commit, as far as they fit ``KEPT_BYTES``.
"""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Final, TypeVar

from aeron_spark.errors import AeronSparkError, RefusedError, TransportError, UsageError
from aeron_spark.remote.appending import Transaction, enter
from aeron_spark.remote.asking import Asking
from aeron_spark.remote.directory import describe_stream
from aeron_spark.remote.pieces import Data, Piece, check_payload, pieces_of
from aeron_spark.remote.staging import OUTAGE, Staging, check_partition

KEPT_BYTES: Final = 64 << 20  # of a transaction's rows; a larger one fails where an outage takes its stages
OUTAGE_SECONDS: Final = 60.0  # a restart of the server takes some, a network's hiccup fewer
FIRST_PAUSE: Final = 0.05  # seconds between two attempts; twice as long each time
LONGEST_PAUSE: Final = 2.0

_W = TypeVar("_W", bound="Writer")


class Writer(ABC):
    """What writes transactions. The end of a ``with`` block commits, an exception in it aborts. For one thread."""

    @abstractmethod
    def write(self, data: Data, *, partition: int | None = None) -> None:
        """Add rows to the transaction: a pyarrow RecordBatch or Table, bytes (a value), or a list of bytes.

        Without ``partition`` all rows of a transaction go to the same one, in order; the next transaction takes the
        next partition.
        """

    @abstractmethod
    def commit(self) -> None:
        """End the transaction well; without rows there is none. The next write begins another one."""

    @abstractmethod
    def abort(self) -> None:
        """Drop what was written since the last commit."""

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


class StreamWriter(Writer):
    """Writes to ``stream`` while its server is there; ``Client.writer`` makes it.

    With a ``writer_id`` transactions are numbered on from the last one the server has of it, and an earlier writer of
    that id is fenced off. ``timeout`` is how long an outage may last, in seconds. Raises OptionError for a stream that
    is not there, RefusedError for what is not allowed.
    """

    def __init__(
        self, asking: Asking, stream: str, *, writer_id: str | None = None, partition: int | None = None,
        payload: str = "auto", timeout: float = OUTAGE_SECONDS, kept_bytes: int = KEPT_BYTES,
    ) -> None:  # fmt: skip
        self.stream = stream
        self.writer_id = writer_id or f"once-{uuid.uuid4()}"
        self._asking = asking
        self._partition = partition
        self._payload = check_payload(payload)
        self._timeout = timeout
        self._most = kept_bytes
        self._run = uuid.uuid4().hex
        self._once = writer_id is None
        self._closed = False
        self._partitions = len(describe_stream(asking, stream).partitions)
        if partition is not None:
            check_partition(stream, partition, self._partitions)
        self._last = -1 if self._once else enter(asking, stream, self._transaction(-1))
        self._staging: Staging | None = None
        self._kept: list[Piece] | None = []
        self._size = 0

    @property
    def last(self) -> int:
        """The number of the last committed transaction; -1 before the first one."""
        return self._last

    def write(self, data: Data, *, partition: int | None = None) -> None:
        """See :meth:`Writer.write`. Raises DataFormatError for rows the stream cannot have; none is lost by an outage.

        After any error the transaction is as it was before, or, where the server was gone for too long, can only be
        aborted.
        """
        self._refuse_closed()
        at = self._partition if partition is None else partition
        if at is not None:
            check_partition(self.stream, at, self._partitions)
        for piece in pieces_of(data, self._payload, at):
            staging = self._begun()
            self._keep(piece)
            try:
                staging.put(piece)
            except (*OUTAGE, RefusedError) as error:
                self._stage_again(error)
            except AeronSparkError:
                self._unkeep(piece)
                raise

    def commit(self) -> None:
        """See :meth:`Writer.commit`. Raises RefusedError where another writer of this id has taken over.

        After an error it may be called again: the transaction keeps its number, and is committed once.
        """
        self._refuse_closed()
        end = time.monotonic() + self._timeout
        while self._staging is not None:
            staging = self._staging
            try:
                staging.commit()
            except (*OUTAGE, RefusedError) as error:
                if time.monotonic() >= end or self._asking.host.closed:
                    raise
                if staging.whole and not isinstance(error, RefusedError):
                    time.sleep(LONGEST_PAUSE)  # its stages may be there still: the same commit again
                else:
                    self._stage_again(error)
            else:
                self._done()

    def abort(self) -> None:
        """See :meth:`Writer.abort`."""
        staging, self._staging = self._staging, None
        self._kept, self._size = [], 0
        if staging is not None:
            staging.abort()

    def close(self) -> None:
        """See :meth:`Writer.close`."""
        if not self._closed:
            self._closed = True
            self.abort()

    def _transaction(self, number: int) -> Transaction:
        return Transaction(self.writer_id, self._run, number, self._once)

    def _begun(self) -> Staging:
        if self._staging is None:
            self._staging = Staging(self._asking, self.stream, self._transaction(self._last + 1))
        return self._staging

    def _done(self) -> None:
        self._last += 1
        self._staging, self._kept, self._size = None, [], 0

    def _keep(self, piece: Piece) -> None:
        self._size += piece.rows.nbytes
        if self._size > self._most:
            self._kept = None
        elif self._kept is not None:
            self._kept.append(piece)

    def _unkeep(self, piece: Piece) -> None:
        self._size -= piece.rows.nbytes
        if self._kept is not None:
            self._kept.pop()

    def _stage_again(self, why: AeronSparkError) -> None:
        """Stage all of the transaction anew, once the server is there; raise ``why``, or a later error, if it is not.

        A server that has the transaction (the commit's answer was lost) ends it instead.
        """
        end = time.monotonic() + self._timeout
        pause = FIRST_PAUSE
        while True:
            staging = self._staging
            if staging is None or self._asking.host.closed or time.monotonic() >= end:
                raise why
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            try:
                # says who has taken over, which no waiting mends
                if enter(self._asking, self.stream, staging.transaction) >= staging.transaction.id:
                    self._done()
                    return
            except OUTAGE as error:
                why = error
                continue
            if self._kept is None:
                raise TransportError(
                    f"{why.what}; the {self._size} bytes of the transaction are too many to be sent again",
                    remedy="Write it again, in smaller transactions.",
                ) from why
            try:
                staging.discard()
                for piece in self._kept:
                    staging.put(piece)
            except (*OUTAGE, RefusedError) as error:
                why = error
            else:
                return

    def _refuse_closed(self) -> None:
        if self._closed:
            raise UsageError("the writer is closed", remedy="Make another one.")

"""One transaction of a plain client on its way: a stage for each partition it touches, and their commit."""

from __future__ import annotations

import copy
import zlib
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    EndedError,
    OptionError,
    RefusedError,
    SessionLost,
    TransportError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.log.writing import Source
from aeron_spark.stream_client.admin import describe_stream
from aeron_spark.stream_client.appending import ServerAppender, State, Transaction, abort, commit
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.stream_client.write_batches import BYTES, WriteBatch
from aeron_spark.waiting import Deadline
from aeron_spark.wire.stream_rpc import StagedPart

# After one of these the same may succeed: the server, or the way to it, was away.
OUTAGE: Final = (ConnectError, EndedError, SessionLost, TransportError, WaitTimeout)


@dataclass(frozen=True, slots=True)
class _Open:
    """A stage that is being filled."""

    appender: ServerAppender
    payload: str
    schema: pa.Schema | None


class Staging:
    """Stages the pieces of ``transaction``; within a partition rows stay in the order they were put.

    ``deadline`` bounds every wait in here; its owner renews it at the start of each of its own operations. Once
    ``broken`` says why, the rows have to be put into another object of this class.
    """

    def __init__(self, session: StreamSession, stream: str, transaction: Transaction, deadline: Deadline) -> None:
        self.transaction = transaction
        self.rows = 0  # put so far
        self.broken: AeronSparkError | None = None
        self.stamp = ""  # of the transaction, once commit() has returned
        self._session = session
        self._stream = stream
        self._deadline = deadline
        self._appenders: list[ServerAppender] = []
        self._open: dict[int, _Open] = {}  # by partition: the appender that takes its next rows
        self._bytes_as = ""
        self._partitions = 0

    @property
    def committed(self) -> bool:
        """Whether the server said, while rows were put, that it has the transaction: it dropped them then."""
        return any(one.committed for one in self._appenders)

    def put(self, piece: WriteBatch) -> None:
        """Stage a piece: all of it, or nothing; where only a part of it was sent the staging is ``broken``."""
        self._refuse_broken()
        self._look()
        at = self.home if piece.partition is None else piece.partition
        check_partition(self._stream, at, self._partitions)
        payload = self._bytes_as if piece.payload == BYTES else piece.payload
        appender = self._appender(at, payload, piece.rows.schema if payload == "arrow" else None)
        before = appender.rows
        try:
            if payload == "arrow":
                appender.arrow(piece.rows)
            elif payload == "framed":
                appender.framed(piece.values, piece.reserved)
            else:
                appender.raw(piece.values, piece.reserved)
            self.rows += piece.rows.num_rows
        except BaseException as error:
            if appender.state is State.FAILED or appender.rows != before:
                self.spoil(error)
            raise

    @property
    def home(self) -> int:
        """The partition of rows that name none: transactions of a writer go round, writers begin at different ones."""
        return (zlib.crc32(self.transaction.writer.encode()) + self.transaction.id) % self._partitions

    def finish(self) -> list[StagedPart]:
        """Return the parts that a commit names, once the server has all of them. May be called again after an error.

        Raises TransportError, and is broken, where the parts do not have the rows that were put.
        """
        self._refuse_broken()
        try:
            parts = [part for one in self._appenders for part in one.finish()]
            staged = sum(part.rows for part in parts)
            if staged != self.rows and not self.committed:
                raise TransportError(
                    f"{staged} of {self.rows} rows of transaction {self.transaction.id} are staged",
                    remedy="Stage the rows again.",
                )
        except BaseException as error:
            if any(one.state is State.FAILED for one in self._appenders) or isinstance(error, TransportError):
                self.spoil(error)
            raise
        return parts

    def commit(self) -> bool:
        """Make all of it visible; return whether it was before. May be called again after an error."""
        parts = self.finish()
        try:
            repeated, self.stamp = commit(
                self._session, self._stream, self.transaction, parts, self.rows, self._deadline
            )
            return repeated
        except SessionLost:
            raise
        except RefusedError as error:  # such as: a part is not there any more
            self.spoil(error)
            raise

    def spoil(self, error: BaseException) -> AeronSparkError:
        """Note that what was staged is not what the transaction has to have; return why, the first reason there was."""
        if self.broken is None:
            self.broken = (
                error
                if isinstance(error, AeronSparkError)
                else TransportError(f"staging rows was interrupted: {error!r}", remedy="Stage the rows again.")
            )
        return self.broken

    def discard(self) -> None:
        """Forget what was staged on this side; the server drops the rest with the transaction, or in time."""
        self.spoil(UsageError("what was staged was thrown away", remedy="Stage the rows again."))
        for one in self._appenders:
            one.discard()

    def abort(self, seconds: float) -> bool:
        """Drop what was staged, on both sides; return whether the server said so within ``seconds``.

        A server that is away drops it later, by itself.
        """
        self.discard()
        try:
            abort(self._session, self._stream, self.transaction, seconds=seconds)
        except AeronSparkError:
            return False
        return True

    def _appender(self, partition: int, payload: str, schema: pa.Schema | None) -> ServerAppender:
        """The appender of a partition; a stage has one schema, so that with another one the next stage begins."""
        found = self._open.get(partition)
        if found is not None:
            same = found.payload == payload and found.schema == schema
            if same and found.appender.state is State.OPEN:
                return found.appender
            try:
                found.appender.finish()
            except BaseException as error:
                if found.appender.state is State.FAILED:
                    self.spoil(error)
                raise
        one, task = self.transaction, len(self._appenders)
        appender = ServerAppender(
            self._session, self._stream, one, task=task, partition=partition, source=Source(one.writer, one.id, task),
            payload=payload, deadline=self._deadline,
        )  # fmt: skip
        self._appenders.append(appender)
        self._open[partition] = _Open(appender, payload, schema)
        return appender

    def _refuse_broken(self) -> None:
        if self.broken is not None:
            raise copy.copy(self.broken)

    def _look(self) -> None:
        if not self._partitions:
            found = describe_stream(self._session, self._stream, seconds=self._deadline.remaining())
            self._bytes_as = "raw" if found.content == "raw" else "framed"
            self._partitions = len(found.partitions)


def check_partition(stream: str, partition: int, partitions: int) -> None:
    """Raise OptionError for a partition that the stream does not have."""
    if not 0 <= partition < partitions:
        raise OptionError(
            f"stream {stream!r} has no partition {partition}", remedy=f"It has {partitions}, numbered from 0."
        )

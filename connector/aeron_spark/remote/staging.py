"""One transaction of a plain client on its way: a stage for each partition it touches, and their commit."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    OptionError,
    SessionLost,
    TransportError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.log.appender import Source
from aeron_spark.remote.appending import Staged, StagedAppender, Transaction, abort, commit
from aeron_spark.remote.asking import Asking
from aeron_spark.remote.directory import describe_stream
from aeron_spark.remote.pieces import BYTES, Piece

# After one of these the same may succeed: the server, or the way to it, was away.
OUTAGE: Final = (ConnectError, SessionLost, TransportError, UsageError, WaitTimeout)


@dataclass(frozen=True, slots=True)
class _Open:
    """A stage that is being filled."""

    appender: StagedAppender
    payload: str
    schema: pa.Schema | None


class Staging:
    """Stages the pieces of ``transaction``; within a partition rows stay in the order they were put."""

    def __init__(self, asking: Asking, stream: str, transaction: Transaction) -> None:
        self.transaction = transaction
        self._asking = asking
        self._stream = stream
        self._open: dict[int, _Open] = {}  # by partition
        self._whole: list[Staged] = []
        self._tasks = 0
        self._bytes_as = ""
        self._partitions = 0

    def put(self, piece: Piece) -> None:
        """Stage a piece. Raises what the server says, and OUTAGE; the transaction is then to be staged anew."""
        self._look()
        at = self.home if piece.partition is None else piece.partition
        check_partition(self._stream, at, self._partitions)
        payload = self._bytes_as if piece.payload == BYTES else piece.payload
        appender = self._appender(at, payload, piece.rows.schema if payload == "arrow" else None)
        if payload == "arrow":
            appender.arrow(piece.rows)
        elif payload == "framed":
            appender.framed(piece.values, piece.reserved)
        else:
            appender.raw(piece.values, piece.reserved)

    @property
    def home(self) -> int:
        """The partition of rows that name none: transactions of a writer go round, writers begin at different ones."""
        return (zlib.crc32(self.transaction.writer.encode()) + self.transaction.id) % self._partitions

    def commit(self) -> bool:
        """Make all of it visible; whether it was before. May be called again after an error."""
        for partition in list(self._open):
            self._finish(partition)
        return commit(self._asking, self._stream, self.transaction, self._whole)

    @property
    def whole(self) -> bool:
        """Whether the server has all of it, and only the commit is missing."""
        return not self._open

    def discard(self) -> None:
        """Forget what was staged on this side; the server drops the rest with the transaction, or in time."""
        found, self._open, self._whole = self._open, {}, []
        for one in found.values():
            one.appender.discard()

    def abort(self) -> None:
        """Drop what was staged, on both sides; a server that is away does so later, by itself."""
        self.discard()
        try:
            abort(self._asking, self._stream, self.transaction)
        except AeronSparkError:
            return

    def _appender(self, partition: int, payload: str, schema: pa.Schema | None) -> StagedAppender:
        """The appender of a partition; a stage has one schema, so that with another one the next stage begins."""
        found = self._open.get(partition)
        if found is not None and found.payload == payload and found.schema == schema:
            return found.appender
        if found is not None:
            self._finish(partition)
        one, task = self.transaction, self._tasks
        self._tasks += 1
        appender = StagedAppender(
            self._asking, self._stream, one, task=task, partition=partition, source=Source(one.writer, one.id, task),
            payload=payload,
        )  # fmt: skip
        self._open[partition] = _Open(appender, payload, schema)
        return appender

    def _finish(self, partition: int) -> None:
        # it stays open where this raises: then there is something to stage anew
        self._whole += self._open[partition].appender.finish()
        del self._open[partition]

    def _look(self) -> None:
        if not self._partitions:
            found = describe_stream(self._asking, self._stream)
            self._bytes_as = "raw" if found.content == "raw" else "framed"
            self._partitions = len(found.partitions)


def check_partition(stream: str, partition: int, partitions: int) -> None:
    """Raise OptionError for a partition that the stream does not have."""
    if not 0 <= partition < partitions:
        raise OptionError(
            f"stream {stream!r} has no partition {partition}", remedy=f"It has {partitions}, numbered from 0."
        )

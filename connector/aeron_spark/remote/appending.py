"""Appending to a server's stream: a task stages its rows over a branch, a commit makes the stages visible at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.aeron.checksum import crc32
from aeron_spark.duologue.branch import Branch
from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError, TransportError
from aeron_spark.log.appender import Source
from aeron_spark.remote.asking import Asking
from aeron_spark.wire.batches import encode_batch, encode_parts, split_rows
from aeron_spark.wire.frame import Content, Header, payload_limit
from aeron_spark.wire.stages import MOST_DATA, encode_group_item, encode_values_item
from aeron_spark.wire.transfer import HEAD, Kind, encode_head
from aeron_spark.wire.values import encode_values, runs, value_at

SEND_SECONDS: Final = 60.0  # without a byte being taken the server is stuck
LONGEST_MESSAGE: Final = 16 << 20  # Aeron's own limit, whatever the term length
COMMIT_SECONDS: Final = 600.0  # of a large transaction: it is copied into the stream


@dataclass(frozen=True, slots=True)
class Transaction:
    """Whose, of which run, and which one: ids rise from one to the next. ``once``: the writer never comes again.

    ``author`` is who writes under the writer's id, the same over all of its runs; without it each run is one.
    """

    writer: str
    run: str
    id: int
    once: bool = False
    author: str = ""

    @property
    def by(self) -> str:
        """Who may repeat this transaction: its author."""
        return self.author or self.run


@dataclass(frozen=True, slots=True)
class Staged:
    """One stage as a commit names it; see ``streams.stagefile.StageRef``."""

    id: str
    rows: int
    bytes: int
    crc: int


class StagedAppender:
    """Stages the rows of one task, all in one partition of ``stream``. Rows count up from 0 over everything appended.

    Methods are those of :class:`aeron_spark.log.appender.Appender`. Nothing is visible before :func:`commit`.
    """

    def __init__(
        self, asking: Asking, stream: str, transaction: Transaction, *, task: int, partition: int, source: Source,
        payload: str, max_message_bytes: int | None = None, clock: Callable[[], int] = time.time_ns,
    ) -> None:  # fmt: skip
        self.source = source
        self.rows = 0
        self.committed = False  # whether the server has all of the transaction already: rows are dropped then
        self._asking = asking
        self._stream = stream
        self._transaction = transaction
        self._task = task
        self._partition = partition
        self._payload = payload
        self._asked = max_message_bytes
        self._clock = clock
        self._limit = 0
        self._stage: _Stage | None = None

    def raw(self, values: pa.Array[Any], reserved: pa.Array[Any] | None = None) -> None:
        """Stage each value as one message, its bytes untouched."""
        stage = self._open(None)
        if stage is not None:
            self._check_values(values)
            self._put_values(stage, values, reserved)
        self.rows += len(values)

    def framed(self, values: pa.Array[Any], reserved: pa.Array[Any] | None = None) -> None:
        """Stage each value in the wire format, any size."""
        stage = self._open(None)
        if stage is None:
            self.rows += len(values)
            return
        header = self._header(Content.BYTES)
        for run in runs(values, max_message_bytes=self._limit, writer=self.source.writer):
            part = values.slice(run.begin, run.length)
            if run.small:
                extra = None if reserved is None else reserved.slice(run.begin, run.length)
                self._put_values(stage, encode_values(part, header, self.rows), extra)
            else:
                stage.put(encode_group_item(replace(header, row=self.rows), value_at(part, 0)))
            self.rows += run.length

    def arrow(self, batch: pa.RecordBatch) -> None:
        """Stage the rows of a batch as Arrow, split by rows to fit a message, one larger row as a whole."""
        stage = self._open(batch.schema)
        if stage is not None:
            header = self._header(Content.ARROW)
            for first, piece in split_rows(batch, payload_limit(self._limit, self.source.writer)):
                if piece.num_rows:
                    one = replace(header, row=self.rows + first, rows=piece.num_rows)
                    stage.put(
                        encode_group_item(one, encode_batch(piece) if piece.num_rows > 1 else encode_parts(piece))
                    )
        self.rows += batch.num_rows

    def finish(self) -> list[Staged]:
        """Return what a commit has to name, once the server has it all; nothing where there is nothing to commit."""
        stage, self._stage = self._stage, None
        return [] if stage is None else [stage.finish(self.rows)]

    def discard(self) -> None:
        """Throw away what was staged."""
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.discard()

    def _open(self, schema: pa.Schema | None) -> _Stage | None:
        if self._stage is None and not self.committed:
            limit = min(self._asking.ask("describe", self._stream)["term_bytes"] // 8, LONGEST_MESSAGE)
            if self._asked is not None and self._asked > limit:
                raise OptionError(
                    f"option 'maxMessageBytes' is {self._asked}, and the longest message of stream {self._stream!r} "
                    f"has {limit} bytes",
                    remedy="Lower it.",
                )
            self._limit = limit if self._asked is None else self._asked
            encoded = b"" if schema is None else bytes(schema.serialize())
            self._stage = _Stage.open(
                self._asking, self._stream, self._transaction, self._partition, self._task, self._payload, encoded
            )
            self.committed = self._stage is None
        return self._stage

    def _header(self, content: Content) -> Header:
        source = self.source
        return Header(
            content, 0, published_ns=self._clock(), batch=source.batch, partition=source.partition, writer=source.writer
        )

    def _check_values(self, values: pa.Array[Any]) -> None:
        lengths: Any = pc.binary_length(values)  # type: ignore[call-overload]  # stubs know no Array[Any]
        longest = pc.max(lengths).as_py() or 0
        if longest > self._limit:
            raise DataFormatError(
                f"a value has {longest} bytes, and the longest message of stream {self._stream!r} has {self._limit}",
                remedy="Write with payload=framed, which sends it in chunks.",
            )

    def _put_values(self, stage: _Stage, values: pa.Array[Any], reserved: pa.Array[Any] | None) -> None:
        rows = len(values)
        size: Any = values.nbytes
        slices = max(1, -(-size // (MOST_DATA // 2)))  # an item takes so much and no more
        step = max(1, rows // slices)
        for first in range(0, rows, step):
            part = values.slice(first, step)
            stage.put(encode_values_item(part, None if reserved is None else reserved.slice(first, step)))


class _Stage:
    """A stage of the server's that this side fills over a branch."""

    def __init__(
        self, asking: Asking, stage_id: str, request: int, lending: AbstractContextManager[Branch], branch: Branch
    ) -> None:
        self._asking = asking
        self._id = stage_id
        self._request = request
        self._lending = lending
        self._branch = branch
        self._sent = 0
        self._crc = 0
        self._room = branch.room - HEAD.size
        self._waiting: list[memoryview] = []
        self._size = 0

    @classmethod
    def open(
        cls, asking: Asking, stream: str, transaction: Transaction, partition: int, task: int, payload: str,
        schema: bytes,
    ) -> _Stage | None:  # fmt: skip
        """Open one; None where the transaction is committed already."""
        lending = asking.branch((stream, partition))
        branch = lending.__enter__()
        try:
            request = asking.request()
            stage_id = asking.ask(
                "open_stage", stream, transaction.writer, transaction.run, transaction.id, partition, task, payload,
                schema, transaction.once, transaction.by, branch.number, request,
            )  # fmt: skip
        except BaseException:
            branch.close()
            lending.__exit__(None, None, None)
            raise
        if not stage_id:
            lending.__exit__(None, None, None)
            return None
        return cls(asking, stage_id, request, lending, branch)

    def put(self, buffers: Iterable[pa.Buffer]) -> None:
        """Send an item: small ones together, large ones in pieces."""
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            self._crc = crc32(view, self._crc)
            while view.nbytes:
                part = view[: self._room - self._size]
                self._waiting.append(part)
                self._size += part.nbytes
                view = view[part.nbytes :]
                if self._size == self._room:
                    self._send()

    def finish(self, rows: int) -> Staged:
        """Send the rest and have the server close it. Raises TransportError where it has something else."""
        try:
            if self._size:
                self._send()
            found = self._asking.ask("finish_stage", self._id, self._sent, SEND_SECONDS, seconds=2 * SEND_SECONDS)
            if tuple(found) != (rows, self._sent, self._crc):
                raise TransportError(
                    f"the server staged {found[0]} rows in {found[1]} bytes, and {rows} rows in {self._sent} bytes "
                    "were sent",
                    remedy="Try again.",
                )
        except BaseException:
            self._branch.close()
            raise
        finally:
            self._lending.__exit__(None, None, None)
        return Staged(self._id, rows, self._sent, self._crc)

    def discard(self) -> None:
        """Have the server throw it away."""
        with suppress(AeronSparkError):
            self._asking.ask("drop_stage", self._id, seconds=2.0)
        self._branch.close()
        self._lending.__exit__(None, None, None)

    def _send(self) -> None:
        self._branch.send(encode_head(self._request, Kind.STAGE, self._sent), *self._waiting, timeout=SEND_SECONDS)
        self._sent += self._size
        self._waiting, self._size = [], 0


def commit(asking: Asking, stream: str, transaction: Transaction, staged: Sequence[Staged]) -> bool:
    """Make what was staged visible, all of it at once; whether that had been done before.

    May be called again after any failure: what is committed stays so, once.
    """
    already, _ = asking.ask(
        "commit", stream, transaction.writer, transaction.run, transaction.id,
        [(one.id, one.rows, one.bytes, one.crc) for one in staged], transaction.by, seconds=COMMIT_SECONDS,
    )  # fmt: skip
    return bool(already)


def enter(asking: Asking, stream: str, transaction: Transaction) -> int:
    """Begin a transaction, and fence off earlier runs; return the writer's last one that is committed, or -1.

    With the id -1 it is whichever comes next. Raises RefusedError where a later run has fenced this one, or another
    author has committed in this transaction's place.
    """
    one = transaction
    return int(asking.ask("enter", stream, one.writer, one.run, one.id, one.once, one.by))


def abort(asking: Asking, stream: str, transaction: Transaction) -> None:
    """Drop what was staged; a transaction that is committed stays."""
    asking.ask("abort", stream, transaction.writer, transaction.run, transaction.id)

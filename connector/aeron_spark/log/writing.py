"""Writing to a log: the interface of both routes, and the encoding of rows as a log stores them.

Spark writes through :class:`LogWriter` and :class:`Appender`. The direct route (``direct.writing``) publishes rows at
once: a repeated task publishes its rows again. Through a server (``stream_client.server_log``) rows are staged, and
a commit makes the rows of all tasks visible, exactly once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from aeron_spark.aeron.framed_values import encode_values
from aeron_spark.wire.arrow import BatchEncoder, encode_batch, encode_parts, split_rows
from aeron_spark.wire.chunks import Content, Header, Payload, payload_limit
from aeron_spark.wire.values import runs, value_at

if TYPE_CHECKING:
    from aeron_spark.wire.stream_requests import CommitPart, Committed, LastCommitted, Transaction

PART_BYTES: Final = 32 << 10  # of a column, from which on its encoding as a view is faster than a copy


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of rows, for their metadata: writer id, micro-batch, and Spark partition (-1: none)."""

    writer: str
    batch: int = -1
    partition: int = -1


class Appender(Protocol):
    """Appends the rows of one task. For one thread."""

    @property
    def rows(self) -> int:
        """The number of rows appended so far, dropped ones included."""

    @property
    def committed(self) -> bool:
        """Whether the server had committed the transaction before, so that the rows are dropped."""

    def append(self, batch: pa.RecordBatch) -> None:
        """Append all rows of a batch, as the payload that was given to :meth:`LogWriter.begin` says.

        ``raw`` and ``framed`` rows have a column ``value`` (binary or string, without nulls) and can have a column
        ``reservedValue``. On the direct route, columns ``channel`` and ``streamId`` can name another stream per row.
        """

    def finish(self) -> Sequence[CommitPart]:
        """Wait until the archive or the server has all rows; return the parts to commit, none on the direct route.

        Can be called again: it returns the same parts, or raises the same error if the rows are lost.
        """

    def discard(self) -> None:
        """Discard staged rows that are not finished. On the direct route it does nothing."""


class LogWriter(Protocol):
    """Writes to one stream, over either route; it may be used in many processes, each with its own object.

    Tasks call :meth:`begin`; then one process calls :meth:`commit` or :meth:`abort`. On the direct route these two do
    nothing, and ``servers`` is empty.
    """

    @property
    def has_transactions(self) -> bool:
        """Whether a commit makes rows visible, once for each transaction; if not, every append does."""

    @property
    def has_schema(self) -> bool:
        """Whether all record batches of the stream must have one schema."""

    def check_other_host(self) -> None:
        """Raise SetupError if tasks can write only on the host that planned the write. Call it on another host."""

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of the servers that hold the stream."""

    def server_of(self, transaction: Transaction) -> str:
        """Return the name of the server that takes all rows of the transaction, "" on the direct route."""

    def has_reached(self, server: str) -> bool:
        """Whether this process has reached the archive, or the server of that name, before."""

    def check_answers(self, transaction: Transaction, server: str) -> None:
        """Return if the archive, or the server of that name, answers. Raises the reason for which it does not."""

    def begin(self, transaction: Transaction, source: Source, payload: str) -> Appender:
        """Return an appender for the rows of one task; the first append opens a publication or a stage."""

    def commit(
        self, transaction: Transaction, server: str, parts: Sequence[CommitPart], rows: int, token: str = ""
    ) -> Committed:
        """Make the ``rows`` rows of ``parts`` visible at once, on one server. Can be repeated after any error.

        The server keeps ``token`` with the producer's last transaction, for :meth:`last_committed`.
        """

    def abort(self, transaction: Transaction, server: str) -> None:
        """Discard the staged rows of the transaction unless it is committed. Connection errors are ignored."""

    def last_committed(self, transaction: Transaction, server: str) -> LastCommitted:
        """Return the last transaction of the same writer and producer that the server has committed, and its token."""


class RowSink(Protocol):
    """Takes encoded rows from a ``RowEncoder``, in order. An error that it raises ends the encoder's call."""

    def put_values(self, values: pa.Array[Any], reserved: pa.Array[Any] | None) -> None:
        """Take values that become one message each, with their reserved values (None: 0 for all)."""

    def put_group(self, header: Header, payload: Payload | Sequence[pa.Buffer], reserved: int) -> None:
        """Take a group: one larger value, or rows of a record batch. Several buffers are one payload, in order."""


class RowEncoder:
    """Encodes the rows of one task for a sink; ``rows`` counts the rows of all calls. For one thread.

    ``reuses_memory``: the sink needs each group as one buffer, and does not use it after ``put_group`` returns, so the
    next group can have the same memory. ``clock`` gives ns since 1970.
    """

    def __init__(self, source: Source, *, clock: Callable[[], int] = time.time_ns, reuses_memory: bool = False) -> None:
        self.source = source
        self.rows = 0
        self._clock = clock
        self._reuses_memory = reuses_memory
        self._batches: BatchEncoder | None = None

    def raw(self, values: pa.Array[Any], reserved: pa.Array[Any] | None, sink: RowSink) -> None:
        """Put each value as one message, its bytes unchanged."""
        sink.put_values(values, reserved)
        self.rows += len(values)

    def framed(
        self, values: pa.Array[Any], reserved: pa.Array[Any] | None, sink: RowSink, max_message_bytes: int
    ) -> None:
        """Put each value in the wire format; a value that is longer than a message becomes a group."""
        header = self._header(Content.BYTES)
        for run in runs(values, max_message_bytes=max_message_bytes, writer=self.source.writer):
            part = values.slice(run.begin, run.length)
            part_reserved = None if reserved is None else reserved.slice(run.begin, run.length)
            if run.small:
                sink.put_values(encode_values(part, header, self.rows), part_reserved)
            else:
                number = 0 if part_reserved is None else int(part_reserved[0].as_py())
                sink.put_group(replace(header, row=self.rows), value_at(part, 0), number)
            self.rows += run.length

    def arrow(self, batch: pa.RecordBatch, sink: RowSink, max_message_bytes: int) -> None:
        """Put the rows of a batch as groups that fit into a message each; a longer row is a larger group."""
        header = self._header(Content.ARROW)
        max_payload_bytes = payload_limit(max_message_bytes, self.source.writer)
        for first, part in split_rows(batch, max_payload_bytes):
            if part.num_rows:
                payload = self._encode(part, max_payload_bytes)
                sink.put_group(replace(header, row=self.rows + first, rows=part.num_rows), payload, 0)
        self.rows += batch.num_rows

    def _header(self, content: Content) -> Header:
        source = self.source
        return Header(
            content, 0, published_ns=self._clock(), batch=source.batch, partition=source.partition, writer=source.writer
        )

    def _encode(self, batch: pa.RecordBatch, max_payload_bytes: int) -> pa.Buffer | list[pa.Buffer]:
        # One row can be larger than a message; it is not copied, because memory may not have room for a copy.
        if batch.num_rows == 1:
            return encode_parts(batch)
        if not self._reuses_memory:
            is_worth_parts = batch.nbytes >= PART_BYTES * batch.num_columns
            return encode_parts(batch) if is_worth_parts else encode_batch(batch)
        if self._batches is None or self._batches.max_bytes != max_payload_bytes:
            self._batches = BatchEncoder(max_payload_bytes)
        return self._batches.encode(batch)


def values_of(batch: pa.RecordBatch) -> tuple[pa.Array[Any], pa.Array[Any] | None]:
    """Return the column ``value`` as binary, and ``reservedValue``, nulls as 0, or None if the batch has none."""
    values: pa.Array[Any] = batch.column("value").cast(pa.binary())
    if "reservedValue" not in batch.schema.names:
        return values, None
    numbers: Any = batch.column("reservedValue").cast(pa.int64())
    return values, numbers.fill_null(0)

"""Rows as a log holds them: values that are messages, and groups, which are larger values or rows of a record batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from aeron_spark.wire.arrow import BatchEncoder, encode_batch, encode_parts, split_rows
from aeron_spark.wire.chunk import Content, Header, Payload, payload_limit
from aeron_spark.wire.values import encode_values, runs, value_at


@dataclass(frozen=True, slots=True)
class Source:
    """Who writes: the writer's id, its batch, and the task's partition (-1 where there is none)."""

    writer: str
    batch: int = -1
    partition: int = -1


class RowSink(Protocol):
    """Takes what ``RowEncoder`` makes of rows, in their order. What it raises ends the encoder's call."""

    def put_values(self, values: pa.Array[Any], reserved: pa.Array[Any] | None) -> None:
        """Take values that are one message each, with their reserved values, or 0 for all."""

    def put_group(self, header: Header, payload: Payload | Sequence[pa.Buffer], reserved: int) -> None:
        """Take a group: one larger value, or rows of a batch. A payload in several buffers is their bytes in order."""


class RowEncoder:
    """Encodes the rows of one task for a sink; ``rows`` counts those that were given, over all calls.

    ``reuses_memory``: a sink has taken all of a group when ``put_group`` returns, so that the next one may have its
    memory. ``clock`` gives ns since 1970. For one thread.
    """

    def __init__(
        self, source: Source, *, clock: Callable[[], int] = time.time_ns, reuses_memory: bool = False
    ) -> None:  # fmt: skip
        self.source = source
        self.rows = 0
        self._clock = clock
        self._reuses_memory = reuses_memory
        self._batches: BatchEncoder | None = None

    def raw(self, values: pa.Array[Any], reserved: pa.Array[Any] | None, sink: RowSink) -> None:
        """Put each value as one message, its bytes untouched."""
        sink.put_values(values, reserved)
        self.rows += len(values)

    def framed(
        self, values: pa.Array[Any], reserved: pa.Array[Any] | None, sink: RowSink, max_message_bytes: int
    ) -> None:
        """Put each value in the wire format, as a group where it is longer than a message."""
        header = self._header(Content.BYTES)
        for run in runs(values, max_message_bytes=max_message_bytes, writer=self.source.writer):
            part = values.slice(run.begin, run.length)
            extra = None if reserved is None else reserved.slice(run.begin, run.length)
            if run.small:
                sink.put_values(encode_values(part, header, self.rows), extra)
            else:
                number = 0 if extra is None else int(extra[0].as_py())
                sink.put_group(replace(header, row=self.rows), value_at(part, 0), number)
            self.rows += run.length

    def arrow(self, batch: pa.RecordBatch, sink: RowSink, max_message_bytes: int) -> None:
        """Put the rows of a batch as groups that fit a message each, but for a row that is longer than one."""
        header = self._header(Content.ARROW)
        most = payload_limit(max_message_bytes, self.source.writer)
        for first, part in split_rows(batch, most):
            if part.num_rows:
                # One row may be larger than a message, and than memory has room for a second time.
                payload = self._encoded(part, most) if part.num_rows > 1 else encode_parts(part)
                sink.put_group(replace(header, row=self.rows + first, rows=part.num_rows), payload, 0)
        self.rows += batch.num_rows

    def _header(self, content: Content) -> Header:
        source = self.source
        return Header(
            content, 0, published_ns=self._clock(), batch=source.batch, partition=source.partition, writer=source.writer
        )

    def _encoded(self, batch: pa.RecordBatch, most: int) -> pa.Buffer:
        if not self._reuses_memory:
            return encode_batch(batch)
        if self._batches is None or self._batches.max_bytes != most:
            self._batches = BatchEncoder(most)
        return self._batches.encode(batch)

"""Arrow batches of the columns of ``payload=raw``, for programs that have their rows prebuilt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from benchmarks.corpora import Corpus

_TYPES: Final[dict[str, pa.DataType]] = {
    "value": pa.binary(), "channel": pa.string(), "streamId": pa.int32(), "sessionId": pa.int32(),
    "recordingId": pa.int64(), "position": pa.int64(), "reservedValue": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}  # fmt: skip
SCHEMA: Final = pa.schema(_TYPES)
FRAME_BYTES: Final = 128  # between the positions of two rows; only its being a number matters


def raw_batch(values: Sequence[bytes], first_row: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with these values and those columns of ``raw`` that are in ``schema``."""
    rows = len(values)
    columns: dict[str, Any] = {
        "value": lambda: pa.array(values, pa.binary()),
        "channel": lambda: pa.repeat(pa.scalar("aeron:ipc"), rows),
        "streamId": lambda: pa.repeat(pa.scalar(1001, pa.int32()), rows),
        "sessionId": lambda: pa.repeat(pa.scalar(-12345678, pa.int32()), rows),
        "recordingId": lambda: pa.repeat(pa.scalar(1, pa.int64()), rows),
        "position": lambda: pa.array(
            range(first_row * FRAME_BYTES, (first_row + rows) * FRAME_BYTES, FRAME_BYTES), pa.int64()
        ),
        "reservedValue": lambda: pa.repeat(pa.scalar(0, pa.int64()), rows),
        "timestamp": lambda: pa.nulls(rows, schema.field("timestamp").type),
    }
    return pa.RecordBatch.from_arrays([columns[name]() for name in schema.names], schema=schema)


def corpus_batches(corpus: Corpus, batch_rows: int, schema: pa.Schema = SCHEMA) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a corpus, in batches of ``batch_rows``."""
    for first in range(0, corpus.rows, batch_rows):
        rows = range(first, min(first + batch_rows, corpus.rows))
        yield raw_batch([corpus.value(row) for row in rows], first, schema)


def repeated_batch(corpus: Corpus, batch_rows: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield as many rows as the corpus has: slices of its first batch, which is built once."""
    if corpus.rows:
        yield from repeated(next(corpus_batches(corpus, min(corpus.rows, batch_rows), schema)), corpus.rows)


def repeated_file(path: str, rows: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield ``rows`` rows: slices of the only batch of an Arrow file, with the columns of ``schema``."""
    with pa.ipc.open_file(path) as file:
        batch = file.read_all().combine_chunks().select(schema.names).cast(schema).to_batches()[0]
    yield from repeated(batch, rows)


def repeated(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield ``rows`` rows: slices of a batch with rows."""
    while rows > 0:
        yield batch if rows >= batch.num_rows else batch.slice(0, rows)
        rows -= batch.num_rows

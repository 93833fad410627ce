"""The payloads of Arrow batches: for a sink that takes several buffers, large columns are not copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from aeron_spark.log.writing import PART_BYTES, RowEncoder, Source
from aeron_spark.wire.arrow import decode_batches, encode_batch
from aeron_spark.wire.chunks import Header, Payload

MAX_MESSAGE_BYTES = 16 << 20


class Groups:
    """A sink that keeps the payloads of groups."""

    def __init__(self) -> None:
        self.payloads: list[list[pa.Buffer]] = []

    def put_values(self, values: pa.Array[Any], reserved: pa.Array[Any] | None) -> None:
        raise AssertionError("only groups are encoded here")

    def put_group(self, header: Header, payload: Payload | Sequence[pa.Buffer], reserved: int) -> None:
        assert not isinstance(payload, bytes | bytearray | memoryview)
        self.payloads.append([payload] if isinstance(payload, pa.Buffer) else list(payload))


def numbers(rows: int, names: Sequence[str] = ("id",)) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(range(rows), pa.int64()) for name in names})


def encode(batch: pa.RecordBatch, *, reuses_memory: bool = False) -> list[pa.Buffer]:
    sink = Groups()
    RowEncoder(Source("w"), reuses_memory=reuses_memory).arrow(batch, sink, MAX_MESSAGE_BYTES)
    (payload,) = sink.payloads
    assert b"".join(part.to_pybytes() for part in payload) == encode_batch(batch).to_pybytes()
    return payload


LARGE = numbers(PART_BYTES // 8)


@pytest.mark.parametrize("batch", [LARGE, numbers(len(LARGE) + 10).slice(10), LARGE.slice(0, 1)], ids=str)
def test_a_large_batch_is_not_copied(batch: pa.RecordBatch) -> None:
    column = batch.column(0)
    data = column.buffers()[1]
    assert data.address + 8 * column.offset in [part.address for part in encode(batch)]


@pytest.mark.parametrize("batch", [LARGE.slice(1), numbers(len(LARGE) - 1, ["a", "b"])], ids=["rows", "columns"])
def test_a_batch_with_small_columns_is_one_buffer(batch: pa.RecordBatch) -> None:
    assert len(encode(batch)) == 1


def test_a_sink_that_takes_one_buffer_gets_the_same_memory_again() -> None:
    sink = Groups()
    encoder = RowEncoder(Source("w"), reuses_memory=True)
    for _ in range(2):
        encoder.arrow(LARGE, sink, MAX_MESSAGE_BYTES)
    (first,), (second,) = sink.payloads
    assert first.address == second.address
    assert next(decode_batches(second)).equals(LARGE)

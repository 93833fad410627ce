from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa

from aeron_spark.sbe.schema import load_schema
from aeron_spark.sbe.settings import SbeSettings
from aeron_spark.sbe.table import MessageColumns
from benchmarks.trades import FIRST_TIME_NS, LAYOUT, MESSAGE_BYTES, SCHEMA_XML, trade_batches, trade_messages


def test_a_message_has_73_bytes_as_the_schema_lays_them_out() -> None:
    assert LAYOUT.itemsize == MESSAGE_BYTES == 73
    (message,) = trade_messages(np.array([3])).to_pylist()
    header = struct.pack("<HHHH", 65, 1, 9, 1)
    fields = (FIRST_TIME_NS + 3, 7_963_307_283, 121_509, b"AAPL", b"XEUR", 3, 3, 65_535, 3, b"1", 7, 3)
    assert message == header + struct.pack("<Qqq8s4sqiHqcHI", *fields)


def test_each_id_has_its_own_message() -> None:
    messages = trade_messages(np.arange(1_000)).to_pylist()
    assert len(set(messages)) == 1_000
    assert {len(message) for message in messages} == {MESSAGE_BYTES}


def test_the_schema_has_12_columns() -> None:
    columns = MessageColumns(load_schema(SCHEMA_XML), SbeSettings()).arrow_schema
    assert columns.names == [name for name in LAYOUT.names or () if name not in ("blockLength", "templateId")][2:]
    assert len(columns) == 12
    assert columns.field("price").type == pa.decimal128(19, 8)


def test_a_batch_of_ids_becomes_a_batch_of_values() -> None:
    ids = pa.RecordBatch.from_pydict({"id": [5, 6]})
    (batch,) = trade_batches(iter([ids]))
    assert batch.schema.names == ["value"]
    assert batch["value"].to_pylist() == trade_messages(np.array([5, 6])).to_pylist()

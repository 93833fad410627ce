"""A sink with ``payload=sbe`` writes the messages of its rows as raw ones; columns are checked before any task."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType, YearMonthIntervalType

from aeron_spark.direct.archive_recordings import this_host
from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.log.writing import Appender, Source
from aeron_spark.options import WriteOptions
from aeron_spark.spark import writer as writing
from aeron_spark.spark.writer import write_task
from aeron_spark.wire.stream_requests import StagedPart, Transaction
from tests.sbe_orders import SCHEMA, encode_order, order_rows

FIELDS: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("price", pa.decimal128(19, 4)),
        ("side", pa.string()),
        ("symbol", pa.string()),
        ("desk", pa.string()),
        ("fills", pa.list_(pa.struct([("quantity", pa.int64())]))),
        ("note", pa.string()),
    ]
)
COLUMNS: Final = from_arrow_schema(FIELDS)


def order_batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=FIELDS)


class Target:
    """A ``LogWriter`` and ``Appender`` in memory."""

    has_transactions = False
    has_schema = True
    committed = False
    rows = 0

    def __init__(self) -> None:
        self.payload = ""
        self.messages: list[bytes] = []
        self.discarded = 0

    def server_of(self, transaction: Transaction) -> str:
        return ""

    def has_reached(self, server: str) -> bool:
        return False

    def check_answers(self, transaction: Transaction, server: str) -> None:
        pass

    def begin(self, transaction: Transaction, source: Source, payload: str) -> Appender:
        self.payload = payload
        return self

    def append(self, batch: pa.RecordBatch) -> None:
        assert batch.schema.names == ["value"]
        self.messages += batch["value"].to_pylist()

    def finish(self) -> tuple[StagedPart, ...]:
        return ()

    def discard(self) -> None:
        self.discarded += 1


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    target = Target()

    @contextmanager
    def open_writer(*_: Any) -> Iterator[Target]:
        yield target

    monkeypatch.setattr(writing, "open_writer", open_writer)
    return target


def options(**more: str) -> WriteOptions:
    """Return the options of a batch on the direct route."""
    given = {
        "channel": "aeron:ipc",
        "streamId": "1",
        "payload": "sbe",
        "sbeSchema": SCHEMA,
        "sbeMessage": "Order",
        **more,
    }
    return WriteOptions.parse(given, streaming=False)


def test_rows_are_written_as_messages(target: Target) -> None:
    task = pickle.loads(pickle.dumps(write_task(options(), COLUMNS)))
    assert task.planned_on == this_host()
    task.write(iter([order_batch(order_rows(2)), order_batch([]), order_batch(order_rows(3))]))
    assert target.payload == "raw"
    assert target.messages == [encode_order(number) for number in (0, 1, 0, 1, 2)]


def test_a_value_that_does_not_fit_fails_the_task_with_its_row(target: Target) -> None:
    rows = order_rows(2)
    rows[1]["symbol"] = "ABCDEFG"
    with pytest.raises(
        DataFormatError, match=r"row 3 of Spark partition 0, column 'symbol': 'ABCDEFG': .* 6 bytes of UTF-8"
    ):
        write_task(options(), COLUMNS).write(iter([order_batch(order_rows(2)), order_batch(rows)]))
    assert target.discarded == 1


def test_the_schema_is_read_when_the_write_is_planned(tmp_path: Path, target: Target) -> None:
    path = tmp_path / "orders.xml"
    path.write_text(SCHEMA)
    task = write_task(options(sbeSchema=str(path)), COLUMNS)
    path.unlink()
    task.write(iter([order_batch(order_rows(1))]))
    assert target.messages == [encode_order(0)]


def test_wrong_columns_are_refused_when_the_write_is_planned() -> None:
    with pytest.raises(OptionError, match="'value', which the message 'Order'"):
        write_task(options(), from_arrow_schema(pa.schema([("value", pa.binary())])))
    with pytest.raises(OptionError, match="'price' is double"):
        write_task(options(), from_arrow_schema(pa.schema([("id", pa.int64()), ("price", pa.float64())])))
    interval = StructType([StructField("id", YearMonthIntervalType())])
    with pytest.raises(OptionError, match="'id' is INTERVAL YEAR TO MONTH"):
        write_task(options(), interval)
    given = {"channel": "aeron:ipc", "streamId": "1", "payload": "sbe", "sbeSchema": SCHEMA}
    several = WriteOptions.parse(given, streaming=False)
    with pytest.raises(OptionError, match="none is chosen: Order, Heartbeat"):
        write_task(several, COLUMNS)

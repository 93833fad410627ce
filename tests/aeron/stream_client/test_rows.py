"""Rows of each form go to a server and come back equal; the stream's schema decides, also after another program."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import aeron_spark
from aeron_spark.errors import DataFormatError, RefusedError
from tests.aeron.stream_client.conftest import Connect

NOON = datetime(2026, 3, 1, 12, 30, 0, 5, timezone.utc)
SCHEMA = pa.schema(
    [
        pa.field("n", pa.int32(), nullable=False),
        ("text", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(9, 2)),
        ("legs", pa.list_(pa.struct([("code", pa.string()), ("time", pa.duration("us"))]))),
        ("tags", pa.map_(pa.string(), pa.bool_())),
        ("data", pa.binary()),
    ]
)
FULL: dict[str, Any] = {
    "n": 0, "text": "é", "at": NOON, "price": Decimal("1.25"), "legs": [{"code": "A", "time": timedelta(1)}, None],
    "tags": [("x", True)], "data": b"\0\xff",
}  # fmt: skip


@pytest.fixture(scope="module")
def client(connect: Connect) -> aeron_spark.Client:
    return connect()


@pytest.fixture
def stream(client: aeron_spark.Client) -> str:
    name = f"rows-{secrets.token_hex(4)}"
    client.create_stream(name)
    return name


def read(client: aeron_spark.Client, stream: str) -> list[dict[str, Any]]:
    return [row for batch in client.reader(stream) for row in batch.to_pylist()]


def row(n: int, **values: Any) -> dict[str, Any]:
    return {**dict.fromkeys(SCHEMA.names), "n": n, **values}


def test_rows_of_each_form_come_back_equal(client: aeron_spark.Client, stream: str) -> None:
    with client.writer(stream, schema=SCHEMA) as out:
        out.write(FULL)
        out.write({"n": n} for n in (1, 2))
        out.write(pd.DataFrame({"n": [3, 4], "at": [NOON, pd.NaT]}))
        out.write(np.array([(5, "x")], [("n", "i8"), ("text", "U1")]))
        out.write_columns({"n": np.array([6]), "data": [b"y"]})
        out.write_json('{"n": 7, "at": "2026-03-01T12:30:00.000005Z", "price": 2.5, "data": "eQ=="}')
        out.write(pa.record_batch([pa.array([8], pa.int32())], pa.schema([SCHEMA.field("n")])))
        with pytest.raises(DataFormatError, match="row 1, column 'n': it is missing, and not nullable"):
            out.write([{"n": 9}, {"text": "none of this call"}])
    assert read(client, stream) == [
        FULL, row(1), row(2), row(3, at=NOON), row(4), row(5, text="x"), row(6, data=b"y"),
        row(7, at=NOON, price=Decimal("2.50"), data=b"y"), row(8),
    ]  # fmt: skip


def test_the_first_transaction_tells_the_schema_of_the_stream(client: aeron_spark.Client, stream: str) -> None:
    with client.writer(stream) as out:
        out.write({"symbol": "A", "price": 1.5})
    assert client.stream(stream).schema == pa.schema([("symbol", pa.string()), ("price", pa.float64())])
    with client.writer(stream) as out:  # another program
        with pytest.raises(DataFormatError, match="row 0, column 'price': '2' is a str, expected a float"):
            out.write({"symbol": "B", "price": "2"})
        out.write({"price": 2})
    added = pa.schema([("symbol", pa.string()), ("price", pa.float64()), ("venue", pa.string())])
    with client.writer(stream, schema=added) as out:
        out.write({"venue": "X"})
        with pytest.raises(RefusedError, match="the data adds the columns 'venue'"):
            out.commit()
        out.abort()
    with client.writer(stream, schema=added, evolve_schema=True) as out:
        out.write({"venue": "X"})
    assert read(client, stream) == [
        {"symbol": "A", "price": 1.5, "venue": None},
        {"symbol": None, "price": 2.0, "venue": None},
        {"symbol": None, "price": None, "venue": "X"},
    ]


def test_a_schema_that_contradicts_the_streams_is_refused(client: aeron_spark.Client, stream: str) -> None:
    with client.writer(stream) as out:
        out.write({"n": 1})
    with client.writer(stream, schema=pa.schema([("n", pa.string())])) as out:
        out.write({"n": "x"})
        with pytest.raises(DataFormatError, match="'n'"):
            out.commit()
        out.abort()
    assert read(client, stream) == [{"n": 1}]

"""Rows are gathered to record batches: all of a call or none, with the schema given or told by the first rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings

from aeron_spark.errors import DataFormatError
from aeron_spark.rows.gathering import GatheredRows, Row

UTC = timezone.utc
NOON = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
PRICES = pa.schema([pa.field("symbol", pa.string(), False), pa.field("price", pa.float64()), ("n", pa.int32())])


def batches_of(rows: GatheredRows) -> list[pa.RecordBatch]:
    rows.complete()
    return rows.take_batches()


def written(rows: list[Row], schema: pa.Schema | None = None) -> list[dict[str, Any]]:
    """Return the rows as a reader gets them."""
    gathered = GatheredRows(schema)
    gathered.add(rows)
    return [row for batch in batches_of(gathered) for row in batch.to_pylist()]


def assert_refused(rows: list[Any], message: str, schema: pa.Schema | None = PRICES) -> DataFormatError:
    gathered = GatheredRows(schema)
    good = {"symbol": "A", "price": 1.5, "n": 1}
    gathered.add([good])
    with pytest.raises(DataFormatError, match=re.escape(message)) as refused:
        gathered.add(rows)
    assert refused.value.remedy
    assert [batch.to_pylist() for batch in batches_of(gathered)] == [[good]]  # no row of the call was added
    return refused.value


def test_the_schema_decides_and_nullable_columns_may_be_missing() -> None:
    assert written([{"symbol": "A", "n": 3}, {"price": 2, "symbol": "B"}], PRICES) == [
        {"symbol": "A", "price": None, "n": 3},
        {"symbol": "B", "price": 2.0, "n": None},
    ]


def test_an_error_names_row_and_column_and_no_row_of_the_call_is_added() -> None:
    ok = {"symbol": "B"}
    assert_refused([ok, ok, {"symbol": "C", "n": 2**31}], "row 2, column 'n': 2147483648 is out of the range of int32")
    assert_refused([ok, {"price": 1.0}], "row 1, column 'symbol': it is missing, and not nullable")
    assert_refused([{"symbol": None}], "row 0, column 'symbol': it is null, and not nullable")
    assert_refused([ok, {"symbol": "C", "prise": 1.0}], "row 1 has a column 'prise', which is not in the schema")
    assert_refused([ok, ("symbol", "C")], "row 1 is a tuple, and not a dict")
    nested = pa.schema([*PRICES, ("legs", pa.list_(pa.struct([("code", pa.string())])))])
    with pytest.raises(DataFormatError, match=re.escape("row 1, column 'legs[1].code': 7 is a int, expected a str")):
        GatheredRows(nested).add([ok, {"symbol": "C", "legs": [None, {"code": 7}]}])


def test_an_error_of_the_iterable_is_raised_unchanged_and_adds_no_row() -> None:
    def rows() -> Iterator[Row]:
        yield {"symbol": "A"}
        raise KeyError("of the program")

    gathered = GatheredRows(PRICES)
    with pytest.raises(KeyError, match="of the program"):
        gathered.add(rows())
    assert batches_of(gathered) == []


@pytest.mark.parametrize("schema", [PRICES, None])
def test_a_batch_has_a_limited_number_of_rows_and_bytes(schema: pa.Schema | None) -> None:
    gathered = GatheredRows(schema, max_rows=3, max_bytes=200)
    gathered.add({"symbol": "A", "price": 1.0, "n": n} for n in range(7))
    gathered.add([{"symbol": "x" * 100, "price": 1.0, "n": n} for n in range(7, 10)])
    gathered.add([{"symbol": "x" * 1000, "price": 1.0, "n": 10}])
    gathered.add([{"symbol": "A", "price": 1.0, "n": 11}])
    batches = batches_of(gathered)
    assert [batch.num_rows for batch in batches] == [3, 3, 2, 1, 1, 1, 1]
    assert [row["n"] for batch in batches for row in batch.to_pylist()] == list(range(12))


@pytest.mark.parametrize("schema", [PRICES, None])
def test_a_failed_call_restores_the_rows_before_it_across_a_batch(schema: pa.Schema | None) -> None:
    """The schema that only the failed call's rows completed is forgotten, too."""
    gathered = GatheredRows(schema, max_rows=3)
    for n in range(2):
        gathered.add([{"symbol": "A", "price": 1.5, "n": n}])
    mark = gathered.mark()
    with pytest.raises(DataFormatError, match="row 5"):
        gathered.add([*({"symbol": "B", "price": 1.0, "n": n} for n in range(5)), {"symbol": 1}])
    assert (len(gathered), gathered.schema) == (2, schema)
    gathered.add([{"symbol": "C", "price": None, "n": 2}] * 3)
    gathered.restore(mark)  # as a writer does whose stage failed
    assert [row["n"] for batch in batches_of(gathered) for row in batch.to_pylist()] == [0, 1]


def test_the_first_rows_tell_the_schema() -> None:
    rows: list[Row] = [
        {"a": True, "b": 1, "c": None, "d": "x", "l": [], "s": {"x": None}},
        {"c": 1.5, "e": b"x", "f": NOON, "l": [None, 3], "s": {"y": [{"z": "q"}]}},
        {"g": date(2026, 1, 1), "h": time(1), "i": timedelta(1), "a": None, "s": {"x": 7, "y": []}},
    ]
    gathered = GatheredRows(None)
    gathered.add(rows)
    [batch] = batches_of(gathered)
    assert gathered.schema == batch.schema
    inner = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.struct([("z", pa.string())])))])
    assert dict(zip(batch.schema.names, batch.schema.types, strict=True)) == {
        "a": pa.bool_(), "b": pa.int64(), "c": pa.float64(), "d": pa.string(), "l": pa.list_(pa.int64()), "s": inner,
        "e": pa.binary(), "f": pa.timestamp("us", "UTC"), "g": pa.date32(), "h": pa.time64("us"),
        "i": pa.duration("us"),
    }  # fmt: skip
    assert batch.to_pylist()[1]["s"] == {"x": None, "y": [{"z": "q"}]}
    assert all(field.nullable for field in batch.schema)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"at": datetime(2026, 1, 1)}], "row 0, column 'at': the datetime 2026-01-01 00:00:00 has no zone"),
        ([{"p": 1}, {"p": Decimal("1.5")}], "row 1, column 'p': Decimal('1.5') does not tell the digits"),
        ([{"p": 1}, {"p": "x"}], "row 1, column 'p': it is string, after int64 in earlier rows"),
        ([{"p": 1}, {"p": 1.5}], "row 1, column 'p': it is double, after int64 in earlier rows"),
        ([{"p": True}, {"p": 1}], "row 1, column 'p': it is int64, after bool in earlier rows"),
        ([{"p": [1, "x"]}], "row 0, column 'p[1]': it is string, after int64 in earlier rows"),
        ([{"p": {"q": 1}}, {"p": {"q": {}}}], "row 1, column 'p.q': it is struct<>, after int64 in earlier rows"),
        ([{"p": 2**63}], "row 0, column 'p': 9223372036854775808 is out of the range of int64"),
        ([{"p": {1, 2}}], "row 0, column 'p': {1, 2} is a set, which a column cannot have"),
        ([{"p": {1: 2}}], "row 0, column 'p': the name 1 of a field is not a str"),
        ([{7: 2}], "row 0 has a column 7, whose name is not a str"),
        ([{"\ud800": 2}], r"row 0 has a column '\ud800', whose name is not a str of valid Unicode"),
        ([{"p": {"\ud800": 2}}], r"row 0, column 'p': the name '\ud800' of a field is not a str of valid Unicode"),
        ([{"p": "a"}, {"p": "\ud800"}], r"row 1, column 'p': '\ud800' is not valid Unicode"),
        (
            [{"p": [pd.Timestamp(1, tz="UTC")]}],
            "row 0, column 'p[0]': 1970-01-01 00:00:00.000000001+00:00 is not a whole",
        ),
        ([{"p": {"q": time(1, tzinfo=UTC)}}], "row 0, column 'p.q': 01:00:00+00:00 has a zone"),
    ],
)
def test_values_that_do_not_tell_a_type_are_refused(rows: list[Row], message: str) -> None:
    assert_refused(rows, message, None)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"a": 1, "b": None}] * 3, "rows 0 to 2, column 'b': all its values are null"),
        ([{"a": None}], "row 0, column 'a': all its values are null"),
        ([{"a": [[]]}], "row 0, column 'a[][]': all its values are null"),
        ([{"a": {"b": {}}}], "row 0, column 'a.b': all its dicts are empty"),
        ([{}], "the rows have no columns"),
    ],
)
def test_columns_that_no_row_tells_are_refused_until_a_row_tells_them(rows: list[Row], message: str) -> None:
    gathered = GatheredRows(None)
    gathered.add(rows)
    for _ in range(2):
        with pytest.raises(DataFormatError, match=re.escape(message)):
            gathered.complete()
    telling: dict[str, Any] = {"a": [[1]]} if "[[" in repr(rows) else {"a": 1, "b": 2}
    if "{'b'" in repr(rows):
        telling = {"a": {"b": {"c": 1}}}
    gathered.add([telling])
    assert [batch.num_rows for batch in batches_of(gathered)] == [len(rows) + 1]


def test_a_program_may_change_a_dict_after_it_was_written() -> None:
    typed = pa.schema([("l", pa.list_(pa.int64())), ("b", pa.binary()), ("v", pa.list_(pa.float64()))])
    for schema in (None, typed):
        row: dict[str, Any] = {"l": [1], "b": bytearray(b"a"), "v": np.array([1.5])}
        gathered = GatheredRows(schema)
        gathered.add([row])
        row["l"].append(2)
        row["b"][0] = 0
        row["v"][0] = 2.5
        assert batches_of(gathered)[0].to_pylist() == [{"l": [1], "b": b"a", "v": [1.5]}]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([("a", pa.int64()), ("a", pa.int64())]), "two columns with one name"),
        (pa.schema([("a", pa.uuid())]), "the column 'a' is extension<arrow.uuid>"),
        (pa.schema([]), "the schema has no columns"),
    ],
)
def test_a_schema_that_rows_cannot_have_is_refused(schema: pa.Schema, message: str) -> None:
    with pytest.raises(DataFormatError, match=message):
        GatheredRows(schema).add([{"a": 1}])


# A column has UTC: the first hours of the year 1 in another zone are refused.
instants = st.datetimes(datetime(1, 1, 2), timezones=st.sampled_from([UTC, timezone(timedelta(hours=5))]))
COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "n": st.integers(-(2**63), 2**63 - 1),
    "x": st.floats(allow_nan=False),
    "text": st.text(),
    "data": st.binary(),
    "at": instants,
    "day": st.dates(),
    "list": st.lists(st.integers(0, 9) | st.none()),
    "struct": st.fixed_dictionaries({"a": st.none() | st.text(), "b": st.none() | st.lists(instants)}),
}
some_rows = st.lists(
    st.fixed_dictionaries({}, optional={name: values | st.none() for name, values in COLUMNS.items()}), max_size=8
)


@given(st.lists(some_rows, max_size=4), st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_what_is_written_is_what_a_reader_gets(calls: list[list[dict[str, Any]]], max_rows: int) -> None:
    """Of rows without a schema; or the columns cannot be told."""
    gathered = GatheredRows(None, max_rows=max_rows)
    expected: list[dict[str, Any]] = []
    batches: list[pa.RecordBatch] = []
    for rows in calls:
        mark = gathered.mark()
        try:
            gathered.add(rows)
        except DataFormatError as error:
            assert "null" in error.what or "not in the schema" in error.what or "no columns" in error.what  # noqa: PT017
            gathered.restore(mark)
        else:
            expected += rows
            batches += gathered.take_batches()
    try:
        gathered.complete()
    except DataFormatError as error:
        assert "null" in error.what or "no columns" in error.what  # noqa: PT017
        expected = expected[: len(expected) - len(gathered)]
    batches += gathered.take_batches()
    found = [row for batch in batches for row in batch.to_pylist()]
    names = batches[0].schema.names if batches else []
    assert found == [{name: row.get(name) for name in names} for row in expected]
    assert all(batch.num_rows <= max_rows for batch in batches)

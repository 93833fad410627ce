"""Columns of lists, pandas, numpy and PyArrow become a record batch; each value is stored unchanged or refused."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings

from aeron_spark.errors import DataFormatError
from aeron_spark.rows.columns import (
    batch_of_columns,
    columns_of_data_frame,
    columns_of_structured_array,
    is_data_frame,
    is_structured_array,
)
from tests.programs import CONNECTOR

UTC = timezone.utc
NOON = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


def column(values: Any, kind: pa.DataType | None = None, *, nullable: bool = True) -> pa.Array[Any]:
    schema = None if kind is None else pa.schema([pa.field("x", kind, nullable)])
    return batch_of_columns({"x": values}, schema).column("x")


def refusal(values: Any, kind: pa.DataType | None = None, *, nullable: bool = True) -> str:
    with pytest.raises(DataFormatError) as refused:
        column(values, kind, nullable=nullable)
    assert refused.value.remedy
    return refused.value.what


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, None], pa.int16(), [1, None]),
        (range(3), pa.int64(), [0, 1, 2]),
        (np.array([1, 2], ">i4"), pa.int64(), [1, 2]),
        (np.array([1.0, 2.0]), pa.int64(), [1, 2]),
        (np.array([1, 2]), pa.float32(), [1.0, 2.0]),
        (np.array([1, 2]), pa.decimal128(5, 2), [Decimal(1), Decimal(2)]),
        (np.array([1.5, np.nan]), pa.float32(), "nan"),
        (np.ma.array([1, 2], mask=[False, True]), pa.int64(), [1, None]),
        (np.array([[1, 2], [3, 4]]), pa.list_(pa.int64()), [[1, 2], [3, 4]]),
        (np.array(["a", None], dtype=object), pa.string(), ["a", None]),
        (np.array([b"a", b"bc"]), pa.binary(), [b"a", b"bc"]),
        (np.array(["2026-03-01T12:30"], "M8[ns]"), pa.timestamp("us"), [NOON.replace(tzinfo=None)]),
        (pd.Series([1, None]), pa.int64(), [1, None]),
        (pd.Series([1, None], dtype="Int8"), pa.int64(), [1, None]),
        (pd.Series(["a", None, np.nan]), pa.string(), ["a", None, None]),
        (pd.Series(["a", pd.NA], dtype="string"), pa.large_string(), ["a", None]),
        (pd.Series(["a", None], dtype="category"), pa.string(), ["a", None]),
        (pd.Series([NOON, pd.NaT]), pa.timestamp("us", "UTC"), [NOON, None]),
        (pd.Series([NOON]).dt.tz_convert("Asia/Tokyo"), pa.timestamp("ms", "UTC"), [NOON]),
        (pd.Series([Decimal("1.5"), None]), pa.decimal128(5, 2), [Decimal("1.5"), None]),
        (pd.Series([[1], None]), pa.list_(pa.int8()), [[1], None]),
        (pa.array([1, None], pa.int8()), pa.int64(), [1, None]),
        (pa.chunked_array([["a"], ["b"]]), pa.string(), ["a", "b"]),
        (pa.array(["a", "a"]).dictionary_encode(), pa.string(), ["a", "a"]),
        (pa.array([{"a": 1}]), pa.struct([("a", pa.int8())]), [{"a": 1}]),
    ],
    ids=str,
)
def test_values_are_stored_in_the_columns_type(values: Any, kind: pa.DataType, expected: Any) -> None:
    found = column(values, kind)
    assert found.type == kind
    if expected == "nan":
        assert (found.null_count, str(found.to_pylist())) == (0, "[1.5, nan]")
    else:
        assert found.to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (np.arange(3, dtype="u2"), pa.uint16(), [0, 1, 2]),
        (pd.Series([1.5, None]), pa.float64(), [1.5, None]),
        (pd.Series(["a", None]), pa.string(), ["a", None]),
        (pd.Series(["a", None], dtype="category"), pa.string(), ["a", None]),
        (pd.Series([NOON]), pa.timestamp("ns", "UTC"), [pd.Timestamp(NOON)]),
        (pd.Series([NOON, None], dtype=object), pa.timestamp("us", "UTC"), [NOON, None]),
        ([None, {"a": [1]}], pa.struct([("a", pa.list_(pa.int64()))]), [None, {"a": [1]}]),
        (pa.array([NOON.replace(tzinfo=None)]), pa.timestamp("us"), [NOON.replace(tzinfo=None)]),
        (pa.array([Decimal("1.50")]), pa.decimal128(3, 2), [Decimal("1.50")]),
    ],
    ids=str,
)
def test_values_tell_the_type(values: Any, kind: pa.DataType, expected: list[Any]) -> None:
    found = column(values)
    assert (found.type, found.to_pylist()) == (kind, expected)


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ([1, "x"], pa.int64(), "row 1, column 'x': 'x' is a str, expected an int"),
        (np.array([1.0, 2.0, 2.5]), pa.int64(), "row 2, column 'x': 2.5 does not fit int64"),
        (np.arange(1000), pa.int8(), "row 128, column 'x': 128 does not fit int8"),
        (np.array([1.0, 1e300]), pa.float32(), "row 1, column 'x': 1e+300 does not fit float"),
        (np.array([1, 2**60 + 1]), pa.float64(), f"row 1, column 'x': {2**60 + 1} does not fit double"),
        (np.array([1]), pa.string(), "row 0, column 'x': 1 is a int, expected a str"),
        (
            np.array(["2026-01-01"], "M8[s]"),
            pa.timestamp("s", "UTC"),
            "row 0, column 'x': numpy.datetime64 has no zone",
        ),
        (
            pd.to_datetime(pd.Series(["2026-01-01"])),
            pa.timestamp("us", "UTC"),
            "row 0, column 'x': 2026-01-01 00:00:00 h",
        ),
        (pd.Series([pd.Timestamp(NOON) + pd.Timedelta(1)]), pa.timestamp("us", "UTC"), "row 0, column 'x': Timestamp("),
        (pd.Series([NOON]), pa.timestamp("us"), "row 0, column 'x': 2026-03-01 12:30:00+00:00 has a zone"),
        (np.array([True]), pa.int64(), "row 0, column 'x': True is a bool, expected an int"),
        (pa.array(["x"]), pa.binary(), "row 0, column 'x': 'x' is a str, expected bytes"),
        (np.array([1 + 2j]), pa.float64(), "row 0, column 'x': (1+2j) is a complex, expected a float"),
        ("abc", pa.string(), "the column 'x' is a str, and not a list or an array"),
        (7, pa.int64(), "the column 'x' is a int, and not a list or an array"),
        (np.zeros(2, [("a", "i4")]), pa.int64(), "row 0, column 'x': (0,) is a tuple, expected an int"),
    ],
    ids=str,
)
def test_a_value_that_would_be_stored_changed_is_refused(values: Any, kind: pa.DataType, message: str) -> None:
    assert message in refusal(values, kind)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pd.to_datetime(pd.Series([None, "2026-01-01"])), "row 1, column 'x': the time has no zone"),
        (np.array(["2026-01-01"], "M8[s]"), "row 0, column 'x': the time has no zone"),
        (pd.Series([None, Decimal("1.5")]), "row 1, column 'x': Decimal('1.5') does not tell the digits"),
        (pd.Series([None, None]), "rows 0 to 1, column 'x': all its values are null"),
        (pd.Series([1, "x"]), "row 1, column 'x': it is string, after int64"),
        ([datetime(2026, 1, 1)], "row 0, column 'x': the datetime 2026-01-01 00:00:00 has no zone"),
        (pa.nulls(3), "rows 0 to 2, column 'x': all its values are null"),
    ],
    ids=str,
)
def test_values_that_do_not_tell_a_type_are_refused(values: Any, message: str) -> None:
    assert message in refusal(values)


def test_a_null_is_refused_by_a_column_that_is_not_nullable() -> None:
    message = "row 1, column 'x': it is null, and not nullable"
    for values in ([1, None], pd.Series([1, None]), pa.array([1, None]), pd.Series([1, None], dtype=object)):
        assert refusal(values, pa.int64(), nullable=False) == message


def test_columns_match_the_schema_by_name() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), False), ("b", pa.string())])
    assert batch_of_columns({"a": [1, 2]}, schema).to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": None}]
    for columns, message in (
        ({"b": ["x"]}, "the column 'a' is missing, and not nullable"),
        ({"a": [1], "z": [1]}, "the column 'z' is not in the schema"),
        ({"a": [1, 2], "b": ["x"]}, "the columns have different lengths: 'a' 2, 'b' 1"),
        ({7: [1]}, "the name 7 of a column is not a str"),
    ):
        with pytest.raises(DataFormatError, match=re.escape(message)):
            batch_of_columns(columns, schema)


@pytest.mark.parametrize("schema", [None, pa.schema([pa.field("a", pa.int64(), False)])])
def test_no_rows_make_no_rows(schema: pa.Schema | None) -> None:
    for columns in ({}, {"a": []}, {"a": pd.Series([], dtype=object)}, {"a": np.array([])}):
        assert batch_of_columns(columns, schema).num_rows == 0


def test_a_data_frame_gives_its_columns() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
    assert is_data_frame(frame)
    assert batch_of_columns(columns_of_data_frame(frame), None).to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    part = columns_of_data_frame(frame[frame.a > 1])
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert batch_of_columns(part, schema).to_pylist() == [{"a": 2, "b": None}]
    for wrong, message in (
        (frame.set_index("a"), "the DataFrame has the index 'a', which is not a column"),
        (pd.DataFrame({1: [1]}), "the DataFrame's column 1 has a name that is not a str"),
        (pd.concat([frame, frame], axis=1), "the DataFrame has two columns 'a'"),
    ):
        with pytest.raises(DataFormatError, match=re.escape(message)):
            columns_of_data_frame(wrong)


def test_a_structured_array_gives_its_fields() -> None:
    dtype: Any = [("a", ">i2"), ("b", "U3"), ("c", "f8", (2,)), ("d", [("e", "i4")])]
    array = np.array([(1, "x", (0.5, 1.5), (7,)), (2, "yz", (0, 0), (8,))], dtype)
    assert is_structured_array(array)
    assert is_structured_array(array.view(np.recarray))
    assert not is_structured_array(np.arange(3))
    assert not is_structured_array(array.reshape(1, 2))
    schema = pa.schema([("a", pa.int16()), ("b", pa.string()), ("c", pa.list_(pa.float64(), 2))])
    columns = columns_of_structured_array(array)
    del columns["d"]  # its elements are tuples, which have no names
    assert batch_of_columns(columns, schema).to_pylist() == [
        {"a": 1, "b": "x", "c": [0.5, 1.5]},
        {"a": 2, "b": "yz", "c": [0.0, 0.0]},
    ]


def test_neither_pandas_nor_numpy_is_needed() -> None:
    code = (
        "import sys; sys.modules['pandas'] = sys.modules['numpy'] = None; "
        "from aeron_spark.stream_client.row_input import RowInput; rows, staged = RowInput('auto', None), []; "
        "rows.write({'a': 1}, None, print); rows.write_columns({'a': [2, 3]}, None, staged.extend); "
        "print([row['a'] for batch in staged for row in batch.rows.to_pylist()])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(CONNECTOR)}, capture_output=True, text=True, check=True,
        timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == "[1, 2, 3]"


numbers = st.lists(st.integers(-(2**15), 2**15 - 1), min_size=1, max_size=20)


@given(numbers, st.sampled_from(["i2", ">i4", "i8", "f8"]), st.sampled_from([pa.int8(), pa.int32(), pa.float32()]))
@settings(max_examples=60, deadline=None)
def test_an_array_is_stored_as_its_list_is(values: list[int], dtype: str, kind: pa.DataType) -> None:
    """Or both are refused at the same row."""
    try:
        expected: object = column(values, kind).to_pylist()
    except DataFormatError as error:
        expected = error.what.partition(",")[0]
    for array in (np.array(values, dtype), pd.Series(values), pa.array(values, pa.int64())):
        try:
            found: object = column(array, kind).to_pylist()
        except DataFormatError as error:
            found = error.what.partition(",")[0]
        assert found == expected

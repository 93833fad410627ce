"""JSON becomes rows: in one text, in an array or in lines, with texts for what JSON does not have."""

from __future__ import annotations

import io
import json
import re
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from aeron_spark.cli.outputs import JsonOutput
from aeron_spark.errors import DataFormatError
from aeron_spark.rows.gathering import GatheredRows, rows_of_json

UTC = timezone.utc


def written(text: Any, schema: pa.Schema | None = None) -> list[dict[str, Any]]:
    gathered = GatheredRows(schema)
    gathered.add(rows_of_json(text, schema))
    gathered.complete()
    return [row for batch in gathered.take_batches() for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}\n{"a": 2}\n',
        '{"a": 1}{"a": 2}',
        ' [{"a": 1},\n {"a": 2}] ',
        b'{"a": 1}\r\n\r\n{"a":\n2}',
        ['{"a": 1}\n', b'{"a": 2}\n', "", "\n"],
        io.StringIO('{"a": 1}\n{"a": 2}'),
        (line for line in ['[{"a": 1}, {"a": 2}]']),
    ],
)
def test_objects_are_rows_in_each_form(text: Any) -> None:
    assert written(text) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("text", ["", " \n", "[]", [], b""])
def test_no_objects_are_no_rows(text: Any) -> None:
    assert written(text) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}\n{"a": }', "line 2 is not JSON of rows: Expecting value"),
        ('{"a": 1}\n\n7', "line 3 is not JSON of rows: it has a int, expected an object"),
        ('[{"a": 1}, [2]]', "line 1 is not JSON of rows: it has a list, expected an object"),
        (['{"a": 1}', '{"a"'], "line 2 is not JSON of rows: Expecting"),
        (['{"a": 1}', 7], "line 2 is a int, and not text"),
        ('{"a": 1}\n{"a": 1,\n"a": 2}', "line 2 is not JSON of rows: an object has the name 'a' twice"),
        (b'{"a": "\xff"}', "line 1 is not UTF-8"),
        ('{"a": 1.5}\n{"a": 1e400}', "line 2 is not JSON of rows: 1e400 is out of the range of a 64-bit float"),
        ("[" * 100_000, "line 1 is not JSON of rows: it has too many levels"),
    ],
)
def test_an_error_names_the_line(text: Any, message: str) -> None:
    with pytest.raises(DataFormatError, match=re.escape(message)) as refused:
        written(text)
    assert refused.value.remedy


COLUMNS: list[tuple[pa.DataType, Any, Any]] = [
    (pa.timestamp("us", "UTC"), "2026-03-01T12:30:00.5Z", datetime(2026, 3, 1, 12, 30, 0, 500000, UTC)),
    (pa.timestamp("us", "UTC"), "2026-03-01 13:30:00+01:00", datetime(2026, 3, 1, 12, 30, tzinfo=UTC)),
    (pa.timestamp("us", "UTC"), "2026-03-01T12:30:00.123456000Z", datetime(2026, 3, 1, 12, 30, 0, 123456, UTC)),
    (pa.timestamp("us"), "2026-03-01T12:30:00", datetime(2026, 3, 1, 12, 30)),
    (pa.date32(), "2026-03-01", date(2026, 3, 1)),
    (pa.time64("us"), "12:30:00.25", time(12, 30, 0, 250000)),
    (pa.decimal128(30, 20), 1.12345678901234567891, Decimal("1.12345678901234567891")),
    (pa.decimal128(5, 2), "1.5", Decimal("1.50")),
    (pa.decimal128(5, 2), 7, Decimal("7.00")),
    (pa.binary(), "AAE=", b"\0\1"),
    (pa.binary(2), "AAE=", b"\0\1"),
    (pa.float64(), 1, 1.0),
    (pa.list_(pa.date32()), ["2026-03-01", None], [date(2026, 3, 1), None]),
    (pa.struct([("d", pa.date32()), ("n", pa.int8())]), {"d": "2026-03-01"}, {"d": date(2026, 3, 1), "n": None}),
    (pa.map_(pa.string(), pa.date32()), {"k": "2026-03-01"}, [("k", date(2026, 3, 1))]),
    (pa.map_(pa.string(), pa.int8()), [["k", 1]], [("k", 1)]),
]


@pytest.mark.parametrize(("kind", "value", "expected"), COLUMNS, ids=str)
def test_texts_become_what_the_column_needs(kind: pa.DataType, value: Any, expected: Any) -> None:
    text = json.dumps({"x": value}).replace("1.1234567890123457", "1.12345678901234567891")
    assert written([text, '{"x": null}'], pa.schema([("x", kind)])) == [{"x": expected}, {"x": None}]


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (pa.timestamp("us", "UTC"), "2026-03-01T12:30:00", "row 0, column 'x': 2026-03-01 12:30:00 has no zone"),
        (pa.timestamp("us", "UTC"), "yesterday", "'yesterday' is a str, expected a datetime with a zone"),
        (pa.timestamp("us", "UTC"), "2026-03-01T12:30:00.1234567Z", "is a str, expected a datetime"),
        (pa.timestamp("us", "UTC"), 7, "7 is a int, expected a datetime"),
        (pa.int64(), 1.0, "1.0 is a float, expected an int"),
        (pa.decimal128(5, 2), "x", "'x' is a str, expected a Decimal"),
        (pa.decimal128(5, 2), 1.125, "does not fit decimal128"),
        (pa.binary(), "not base64", "'not base64' is a str, expected bytes"),
        (pa.duration("us"), True, "True is a bool, expected a timedelta"),
        (pa.duration("us"), 1.5, "1.5 is a float, expected a timedelta"),
        (pa.list_(pa.date32()), "2026", "'2026' is a str, expected a list"),
        (pa.struct([("d", pa.date32())]), [], "[] is a list, expected a dict"),
        (pa.map_(pa.string(), pa.int8()), [7], "[7] is a list, expected a dict or a list of pairs"),
    ],
)
def test_a_text_that_is_something_else_is_refused(kind: pa.DataType, value: Any, message: str) -> None:
    with pytest.raises(DataFormatError, match=re.escape(message)):
        written(json.dumps({"x": value}), pa.schema([("x", kind)]))


def test_without_a_schema_a_text_is_a_text() -> None:
    assert written('{"x": "2026-03-01T12:30:00Z", "y": 1.5}') == [{"x": "2026-03-01T12:30:00Z", "y": 1.5}]


SCHEMA = pa.schema([(f"c{n}", kind) for n, (kind, _, _) in enumerate(COLUMNS) if not pa.types.is_map(kind)])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    f"c{n}": st.sampled_from([expected, None]) for n, (kind, _, expected) in enumerate(COLUMNS)
    if not pa.types.is_map(kind)
}  # fmt: skip


@given(st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_what_receive_prints_is_what_write_json_reads(rows: list[dict[str, Any]]) -> None:
    printed = io.BytesIO()
    JsonOutput(printed).write("arrow", pa.RecordBatch.from_pylist(rows, SCHEMA))
    found = written(printed.getvalue(), SCHEMA)
    assert found == pa.RecordBatch.from_pylist(rows, SCHEMA).to_pylist()

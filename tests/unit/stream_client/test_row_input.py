"""A writer takes rows in many forms: each call adds all of its rows to the transaction, in order, or none."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from aeron_spark.errors import ConnectError, DataFormatError, OptionError
from aeron_spark.stream_client.row_input import RowInput, WriteBatch

SCHEMA = pa.schema([pa.field("n", pa.int32(), False), ("text", pa.string())])


class Staged:
    """The batches of a transaction."""

    def __init__(self) -> None:
        self.batches: list[WriteBatch] = []
        self.error: Exception | None = None

    def __call__(self, batches: Sequence[WriteBatch]) -> None:
        if self.error is not None:
            raise self.error
        self.batches += batches

    @property
    def numbers(self) -> list[int]:
        return [row["n"] for batch in self.batches for row in batch.rows.to_pylist()]


@pytest.fixture
def staged() -> Staged:
    return Staged()


FORMS: dict[str, Callable[[list[int]], Any]] = {
    "dicts": lambda ns: [{"n": n} for n in ns],
    "a generator": lambda ns: ({"n": n} for n in ns),
    "a DataFrame": lambda ns: pd.DataFrame({"n": np.array(ns, "i4")}),
    "a structured array": lambda ns: np.array([(n,) for n in ns], [("n", "i4")]),
    "a table": lambda ns: pa.table({"n": pa.array(ns, pa.int32())}),
    "a record batch": lambda ns: pa.record_batch({"n": pa.array(ns, pa.int32())}),
}


@pytest.mark.parametrize("schema", [SCHEMA, pa.schema([("n", pa.int32())]), None])
def test_rows_of_all_forms_keep_their_order(schema: pa.Schema | None, staged: Staged) -> None:
    rows = RowInput("auto", schema)
    if schema is None:
        rows.write(FORMS["a table"]([-1]), None, staged)  # tells the schema: numbers of 32 bits
    expected = [] if schema is not None else [-1]
    for n, make in enumerate([*FORMS.values(), *reversed(FORMS.values())]):
        rows.write({"n": 10 * n}, None, staged)
        rows.write(make([10 * n + 1, 10 * n + 2]), None, staged)
        expected += [10 * n, 10 * n + 1, 10 * n + 2]
    rows.write_json('{"n": 1000}', None, staged)
    rows.write_columns({"n": [1001, 1002]}, None, staged)
    rows.flush(staged)
    assert staged.numbers == [*expected, 1000, 1001, 1002]
    assert all(batch.rows.schema.field("n").type == pa.int32() for batch in staged.batches)
    assert len(rows) == 0


@pytest.mark.parametrize("form", FORMS)
def test_the_first_rows_tell_the_schema_of_the_next(form: str, staged: Staged) -> None:
    rows = RowInput("auto", None)
    rows.write(FORMS[form]([1]), None, staged)
    rows.flush(staged)
    rows.commit()
    assert rows.schema is not None
    for late in ({"n": "x"}, [{"other": 1}], pd.DataFrame({"n": ["x"]})):
        with pytest.raises(DataFormatError, match=r"column '(n|other)'"):
            rows.write(late, None, staged)
    rows.write({"n": None}, None, staged)  # a null tells nothing, and the schema is known
    rows.flush(staged)
    assert staged.numbers == [1, None]


def test_an_aborted_transaction_tells_no_schema(staged: Staged) -> None:
    rows = RowInput("auto", None)
    rows.write([{"n": 1}], None, staged)
    rows.flush(staged)
    rows.abort()
    rows.write({"n": "x"}, None, staged)
    rows.abort()
    rows.write({"n": 1.5}, None, staged)
    rows.flush(staged)
    rows.commit()
    assert rows.schema == pa.schema([("n", pa.float64())])
    rows.abort()
    assert rows.schema == pa.schema([("n", pa.float64())])


@pytest.mark.parametrize(
    "empty", [[], (), iter(()), pd.DataFrame(), pd.DataFrame({"n": []}), np.zeros(0, [("n", "i4")])]
)
@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_no_rows_write_nothing(empty: Any, schema: pa.Schema | None, staged: Staged) -> None:
    rows = RowInput("auto", schema)
    rows.write(empty, None, staged)
    rows.write_json("[]", None, staged)
    rows.write_columns({"n": []}, None, staged)
    rows.flush(staged)
    assert (staged.batches, len(rows)) == ([], 0)


@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_a_failed_stage_leaves_the_rows_before_the_call(schema: pa.Schema | None, staged: Staged) -> None:
    rows = RowInput("auto", schema)
    rows.write({"n": 1}, None, staged)
    staged.error = ConnectError("down")
    for call in (
        lambda: rows.write(pa.table({"n": [2], "text": ["x"]}), None, staged),
        lambda: rows.write_columns({"n": [2]}, None, staged),
        lambda: rows.write({"n": 2}, 1, staged),  # the rows of another partition are staged before it
        lambda: rows.write(({"n": n, "text": "x" * (5 << 20)} for n in range(2)), None, staged),  # fill a batch
        lambda: rows.flush(staged),
    ):
        with pytest.raises(ConnectError):
            call()
        assert (len(rows), rows.schema) == (1, schema)
    staged.error = None
    rows.write({"n": 2}, None, staged)
    rows.flush(staged)
    assert staged.numbers == [1, 2]


def test_rows_of_another_partition_are_another_batch(staged: Staged) -> None:
    rows = RowInput("auto", SCHEMA)
    for n, partition in enumerate([0, 0, 1, None, None]):
        rows.write({"n": n}, partition, staged)
    rows.flush(staged)
    assert [(batch.partition, batch.rows.num_rows) for batch in staged.batches] == [(0, 2), (1, 1), (None, 2)]
    assert staged.numbers == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("payload", ["raw", "framed"])
def test_rows_of_values_have_the_columns_of_a_message(payload: str, staged: Staged) -> None:
    rows = RowInput(payload, SCHEMA)
    rows.write({"value": b"a", "reservedValue": 7}, None, staged)
    rows.write([{"value": b"b"}], None, staged)
    rows.write(b"c", None, staged)
    rows.flush(staged)
    assert {batch.payload for batch in staged.batches} == {payload}
    assert [batch.values.to_pylist() for batch in staged.batches] == [[b"a", b"b"], [b"c"]]
    assert staged.batches[0].reserved is not None
    assert staged.batches[0].reserved.to_pylist() == [7, 0]
    assert rows.arrow_schema is None
    with pytest.raises(DataFormatError, match="row 0, column 'value': it is missing"):
        rows.write({"reservedValue": 7}, None, staged)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("text", "str cannot be written"),
        (7, "int cannot be written"),
        (None, "NoneType cannot be written"),
        (np.arange(3), "ndarray cannot be written"),
        (pd.Series([1]), "Series cannot be written"),
        ([(1, 2)], "a list of values has a tuple, which is not bytes"),
        (iter([(1, 2)]), "row 0 is a tuple, and not a dict"),
        ([{"n": 1}, b"x"], "row 1 is a bytes, and not a dict"),
        ([b"x", {"n": 1}], "a list of values has a dict, which is not bytes"),
        ({1, 2}, "row 0 is a int, and not a dict"),
    ],
)
def test_other_data_is_refused(data: Any, message: str, staged: Staged) -> None:
    with pytest.raises(DataFormatError, match=re.escape(message)) as refused:
        RowInput("auto", SCHEMA).write(data, None, staged)
    assert "dict" in refused.value.remedy
    assert staged.batches == []


@pytest.mark.parametrize("columns", [{"a": [1, 2], "b": ["x", "y"]}, {"a": np.arange(2)}, {"a": pd.Series([1])}])
def test_a_dict_of_columns_is_not_taken_for_a_row(columns: Any, staged: Staged) -> None:
    """Otherwise a slip of a first trial would give the stream a schema of lists, for good."""
    with pytest.raises(DataFormatError, match="all values of the dict are lists") as refused:
        RowInput("auto", None).write(columns, None, staged)
    assert "write_columns()" in refused.value.remedy
    rows = RowInput("auto", pa.schema([("a", pa.list_(pa.int64()))]))
    rows.write({"a": [1, 2]}, None, staged)
    rows.flush(staged)
    assert [batch.rows.to_pylist() for batch in staged.batches] == [[{"a": [1, 2]}]]


@pytest.mark.parametrize("rows", [[{"a": 1}], pd.DataFrame({"a": [1]}), 7])
def test_write_columns_refuses_rows(rows: Any, staged: Staged) -> None:
    with pytest.raises(DataFormatError, match=r"is not a dict of columns") as refused:
        RowInput("auto", None).write_columns(rows, None, staged)
    assert "write()" in refused.value.remedy


def test_a_schema_must_be_one_of_pyarrow() -> None:
    with pytest.raises(OptionError, match="schema is a dict"):
        RowInput("auto", {"n": "int"})  # type: ignore[arg-type]


def test_rows_that_do_not_tell_the_schema_wait(staged: Staged) -> None:
    rows = RowInput("auto", None)
    rows.write({"n": 1, "text": None}, None, staged)
    for call in (lambda: rows.flush(staged), lambda: rows.write(b"x", None, staged)):
        with pytest.raises(DataFormatError, match="row 0, column 'text': all its values are null"):
            call()
    with pytest.raises(DataFormatError, match="row 0, column 'n': the datetime"):
        rows.write({"n": datetime(2026, 1, 1)}, None, staged)
    rows.write({"n": 2, "text": "x"}, None, staged)
    rows.flush(staged)
    assert staged.numbers == [1, 2]


def test_a_file_of_lines_is_read_once(tmp_path: Path, staged: Staged) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"n": 1}\n{"n": 2}\n')
    rows = RowInput("auto", SCHEMA)
    with path.open() as file:
        rows.write_json(file, None, staged)
    rows.flush(staged)
    assert staged.numbers == [1, 2]

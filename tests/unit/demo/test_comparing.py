"""The demo's comparison finds lost, repeated and altered rows."""

from __future__ import annotations

import math
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.comparing import Comparison, compare

SCHEMA = pa.schema([("number", pa.int64()), ("delay", pa.float64()), ("tail", pa.string())])
SENT = pa.table(
    {
        "number": [1, 2, 2, 3, 4],
        "delay": pa.array([1.5, math.nan, math.nan, None, 0.0], from_pandas=False),
        "tail": ["N1", None, None, "", "N4"],
    },
    schema=SCHEMA,
)
Row = tuple[int, float | None, str | None]


def test_the_same_rows_in_another_order_are_equal() -> None:
    result = compare(SENT, SENT.take([4, 2, 0, 1, 3]))
    assert result.equal
    assert result.sentence == "5 rows in, 5 rows out, 0 lost, 0 repeated"


def test_a_lost_row_is_found() -> None:
    result = compare(SENT, SENT.slice(1))
    assert result == Comparison(5, 4, lost=1, repeated=0, never_sent=0)
    assert not result.equal


def test_the_loss_of_one_of_two_equal_rows_is_found() -> None:
    assert compare(SENT, SENT.take([0, 1, 3, 4])) == Comparison(5, 4, lost=1, repeated=0, never_sent=0)


def test_a_repeated_row_is_found() -> None:
    result = compare(SENT, pa.concat_tables([SENT, SENT.slice(3, 1)]))
    assert result == Comparison(5, 6, lost=0, repeated=1, never_sent=0)
    assert not result.equal


def test_a_lost_and_a_repeated_row_do_not_cancel_each_other() -> None:
    result = compare(SENT, SENT.take([0, 0, 1, 2, 3]))
    assert result == Comparison(5, 5, lost=1, repeated=1, never_sent=0)


@pytest.mark.parametrize(
    ("column", "altered"),
    [
        ("number", [9, 2, 2, 3, 4]),
        ("delay", [1.5, None, math.nan, None, 0.0]),
        ("delay", [1.5, math.nan, math.nan, math.nan, 0.0]),
        ("delay", [1.5, math.nan, math.nan, 0.0, 0.0]),
        ("delay", [1.5, math.nan, math.nan, None, -0.0]),
        ("tail", ["N1", None, "", "", "N4"]),
        ("tail", ["N1", None, None, None, "N4"]),
    ],
)
def test_an_altered_value_is_one_row_lost_and_one_never_sent(column: str, altered: list[object]) -> None:
    at = SENT.column_names.index(column)
    values = pa.array(altered, SCHEMA.field(column).type, from_pandas=False)
    result = compare(SENT, SENT.set_column(at, SCHEMA.field(column), values))
    assert result == Comparison(5, 5, lost=1, repeated=0, never_sent=1)
    assert result.sentence.endswith("1 lost, 0 repeated, 1 never sent")


def test_another_column_type_is_refused_even_with_equal_values() -> None:
    integers = SENT.set_column(0, "number", SENT["number"].cast(pa.int32()))
    with pytest.raises(ValueError, match="the columns differ"):
        compare(SENT, integers)


def test_an_empty_result_has_lost_all_rows() -> None:
    assert compare(SENT, SENT.slice(0, 0)) == Comparison(5, 0, lost=5, repeated=0, never_sent=0)


rows = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([None, 0.5, math.nan]), st.sampled_from([None, "", "a"])), max_size=12
)


@given(rows, rows)
def test_the_counts_equal_those_of_a_counter(sent: list[Row], found: list[Row]) -> None:
    sent_counts, found_counts = (Counter(map(repr, some)) for some in (sent, found))
    result = compare(table(sent), table(found))
    surplus = found_counts - sent_counts
    assert result.lost == (sent_counts - found_counts).total()
    assert result.repeated == sum(count for row, count in surplus.items() if row in sent_counts)
    assert result.never_sent == sum(count for row, count in surplus.items() if row not in sent_counts)


def table(some: list[Row]) -> pa.Table:
    columns = zip(*some, strict=True) if some else ([], [], [])
    arrays = [
        pa.array(list(values), kind, from_pandas=False) for values, kind in zip(columns, SCHEMA.types, strict=True)
    ]
    return pa.table(arrays, schema=SCHEMA)

"""The parts of a table, and the number of first rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from demo.pacing import first_rows, paced

TABLE = pa.table({"id": list(range(1000))})


@pytest.mark.parametrize(("seconds", "per_second", "parts"), [(0.0, 20, 1), (0.1, 20, 2), (0.1, 100, 10)])
def test_the_parts_are_the_table_in_order(seconds: float, per_second: int, parts: int) -> None:
    found = list(paced(TABLE, seconds, per_second))
    assert len(found) == parts
    assert pa.concat_tables(found).equals(TABLE)


def test_no_rows_are_no_parts() -> None:
    assert list(paced(TABLE.slice(0, 0), 1.0, 20)) == []


@pytest.mark.parametrize(("rows", "first"), [(1, 1), (20, 1), (21, 2), (336_776, 16_839)])
def test_one_twentieth_of_the_rows_comes_first(rows: int, first: int) -> None:
    assert first_rows(rows) == first

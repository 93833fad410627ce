"""The checks of the second act on the days that it reads back."""

from __future__ import annotations

import pyarrow as pa

from demo.act_two import count_written, latest_days
from demo.flights import Day

ROWS = pa.Table.from_pylist(
    [
        {"day": "2013-01-01", "flights": 2, "departed": 1, "delay": 3.0, "_aeron_batch": 0, "_aeron_row": 0},
        {"day": "2013-01-01", "flights": 5, "departed": 4, "delay": 1.0, "_aeron_batch": 1, "_aeron_row": 0},
        {"day": "2013-01-02", "flights": 1, "departed": 1, "delay": 0.0, "_aeron_batch": 1, "_aeron_row": 1},
    ]
)
ROWS = ROWS.append_column("_aeron_writer", pa.array(["q"] * 3)).append_column("_aeron_partition", pa.array([0] * 3))


def test_the_newest_result_of_a_day_is_the_one_with_most_flights() -> None:
    assert latest_days(ROWS) == {"2013-01-01": Day(5, 4, 1.0), "2013-01-02": Day(1, 1, 0.0)}


def test_a_repeated_micro_batch_is_found() -> None:
    assert count_written(ROWS) == (2, 0)
    assert count_written(pa.concat_tables([ROWS, ROWS.slice(1)])) == (2, 2)

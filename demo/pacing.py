"""Splits a table into parts that are due evenly over some seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

FIRST_PART = 20  # the sender sends 1/20 of the rows, then waits until Spark has read some


def first_rows(rows: int) -> int:
    """Return the number of rows to send before the wait: 1/20 of ``rows``, rounded up."""
    return -(-rows // FIRST_PART)


def paced(table: pa.Table, seconds: float, per_second: int) -> Iterator[pa.Table]:
    """Yield the table over ``seconds``, in ``per_second`` equal parts per second; without waiting for 0 seconds."""
    size = max(1, round(table.num_rows / max(seconds * per_second, 1)))
    start = time.time()
    for first in range(0, table.num_rows, size):
        due = start + seconds * first / table.num_rows
        time.sleep(max(0.0, due - time.time()))
        yield table.slice(first, size)

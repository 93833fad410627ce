"""Parts of a table, evenly over some seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

FIRST_SHARE = 20  # a twentieth comes before whoever sends waits until somebody reads


def first_rows(rows: int) -> int:
    """Return how many of so many rows come before the wait: a twentieth, and one at least."""
    return -(-rows // FIRST_SHARE)


def paced(table: pa.Table, seconds: float, per_second: int) -> Iterator[pa.Table]:
    """Yield the table in ``per_second`` parts of equal size each second, when they are due; at once for 0 seconds."""
    size = max(1, round(table.num_rows / max(seconds * per_second, 1)))
    began = time.time()
    for first in range(0, table.num_rows, size):
        due = began + seconds * first / table.num_rows
        time.sleep(max(0.0, due - time.time()))
        yield table.slice(first, size)

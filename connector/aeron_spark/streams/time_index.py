"""The time index of a partition: finds positions by commit time, and commit times by position. Pure.

An entry is one transaction, or after thinning several consecutive ones: the commit time of the *last* one, and the
start of the *first* one. So a search never returns a position after the wanted transaction. After thinning the position
may be earlier than that, by less than the step of the thinning.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from aeron_spark.errors import DataFormatError

SECOND_NS: Final = 1_000_000_000
# (age, step) in ns: of the entries older than the age, one remains in each step. The last hour stays unchanged; a year
# with one commit per second has about 10,000 entries.
THINNING: Final = (
    (3_600 * SECOND_NS, SECOND_NS),
    (86_400 * SECOND_NS, 60 * SECOND_NS),
    (30 * 86_400 * SECOND_NS, 3_600 * SECOND_NS),
)


class TimeIndex:
    """The commits of one partition, by time. Not safe for concurrent use."""

    def __init__(self) -> None:
        self._times = array("q")  # rising; ns since 1970, UTC
        self._begins = array("q")  # rising positions

    def __len__(self) -> int:
        return len(self._times)

    def add(self, time_ns: int, begin: int) -> None:
        """Add a transaction that is later than all others, and begins at the end of the one before."""
        self._times.append(time_ns)
        self._begins.append(begin)

    def find(self, time_ns: int) -> int | None:
        """Return the start of the first transaction committed at or after ``time_ns``, or None."""
        index = bisect_left(self._times, time_ns)
        return self._begins[index] if index < len(self._times) else None

    def time_of(self, position: int) -> int | None:
        """Return the commit time of the transaction with the byte at ``position``; None without transactions.

        A position before the first transaction has the time of the first one. After thinning the time may be later than
        the transaction's own, by less than the step of the thinning.
        """
        index = max(0, bisect_right(self._begins, position) - 1)
        return self._times[index] if self._times else None

    def forget_before(self, start: int) -> None:
        """Remove transactions that end at or before ``start``; one that continues after it begins at ``start``."""
        count = bisect_right(self._begins, start) - 1
        if count > 0:
            del self._times[:count]
            del self._begins[:count]
        if self._begins and self._begins[0] < start:
            self._begins[0] = start

    def thin(self, now_ns: int) -> int:
        """Join old entries by ``THINNING``; return the number of removed entries."""
        times, begins = array("q"), array("q")
        last = None
        for time_ns, begin in zip(self._times, self._begins, strict=True):
            step = _step(now_ns - time_ns)
            bucket = (step, time_ns // step) if step else None
            if bucket is not None and bucket == last:
                times[-1] = time_ns
            else:
                times.append(time_ns)
                begins.append(begin)
            last = bucket
        removed = len(self._times) - len(times)
        self._times, self._begins = times, begins
        return removed

    def to_bytes(self) -> tuple[bytes, bytes]:
        """Return times and positions, int64 little-endian."""
        return _little(self._times), _little(self._begins)

    @classmethod
    def from_bytes(cls, times: bytes, begins: bytes) -> TimeIndex:
        """Return the index that ``to_bytes`` encoded. Raises DataFormatError for other bytes."""
        index = cls()
        if len(times) != len(begins) or len(times) % 8:
            raise DataFormatError(
                f"a time index has {len(times)} bytes of times and {len(begins)} bytes of positions, expected equal "
                "multiples of 8",
                remedy="Restore the stream's journal from a copy.",
            )
        index._times.frombytes(times)
        index._begins.frombytes(begins)
        if sys.byteorder == "big":
            index._times.byteswap()
            index._begins.byteswap()
        return index


def _step(age: int) -> int:
    step = 0
    for min_age, step_of_age in THINNING:
        if age > min_age:
            step = step_of_age
    return step


def _little(numbers: array[int]) -> bytes:
    if sys.byteorder == "little":
        return numbers.tobytes()
    swapped = array("q", numbers)
    swapped.byteswap()
    return swapped.tobytes()

"""When was what committed: a partition's time index, searched and not scanned. Pure.

An entry stands for one transaction, or after thinning for several that follow each other: when the *last* of them was
committed, and where the *first* begins. So a search never begins behind the data it is for; thinned, it may begin
earlier, by less than the step of the thinning.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from aeron_spark.errors import DataFormatError

SECOND_NS: Final = 1_000_000_000
# (age, step) in ns: entries older than the age are at most one a step. An hour of commits stays as it was; a year of
# one commit a second is about 10,000 entries.
THINNING: Final = (
    (3_600 * SECOND_NS, SECOND_NS),
    (86_400 * SECOND_NS, 60 * SECOND_NS),
    (30 * 86_400 * SECOND_NS, 3_600 * SECOND_NS),
)


class TimeIndex:
    """The commits of one partition, by time. Not safe for concurrent use."""

    def __init__(self) -> None:
        self._times = array("q")  # ns since 1970, UTC; they rise
        self._begins = array("q")  # positions; they rise

    def __len__(self) -> int:
        return len(self._times)

    def add(self, time_ns: int, begin: int) -> None:
        """Add a transaction; it is later than all before, and begins where the one before ended."""
        self._times.append(time_ns)
        self._begins.append(begin)

    def find(self, time_ns: int) -> int | None:
        """Return where the first transaction committed at or after ``time_ns`` begins; None where there is none."""
        index = bisect_left(self._times, time_ns)
        return self._begins[index] if index < len(self._times) else None

    def forget_before(self, start: int) -> None:
        """Forget what ended at or before the position ``start``; what goes on behind it begins there now."""
        gone = bisect_right(self._begins, start) - 1
        if gone > 0:
            del self._times[:gone]
            del self._begins[:gone]
        if self._begins and self._begins[0] < start:
            self._begins[0] = start

    def thin(self, now_ns: int) -> int:
        """Join old entries as ``THINNING`` says; return how many are gone."""
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
        gone = len(self._times) - len(times)
        self._times, self._begins = times, begins
        return gone

    def to_bytes(self) -> tuple[bytes, bytes]:
        """Return times and positions, int64 little-endian."""
        return _little(self._times), _little(self._begins)

    @classmethod
    def from_bytes(cls, times: bytes, begins: bytes) -> TimeIndex:
        """Make an index of what ``to_bytes`` gave. Raises DataFormatError where it cannot have."""
        index = cls()
        if len(times) != len(begins) or len(times) % 8:
            raise DataFormatError(
                f"a time index has {len(times)} bytes of times and {len(begins)} of positions",
                remedy="Restore the stream's journal from a copy",
            )
        index._times.frombytes(times)
        index._begins.frombytes(begins)
        if sys.byteorder == "big":
            index._times.byteswap()
            index._begins.byteswap()
        return index


def _step(age: int) -> int:
    step = 0
    for least, wanted in THINNING:
        if age > least:
            step = wanted
    return step


def _little(numbers: array[int]) -> bytes:
    if sys.byteorder == "little":
        return numbers.tobytes()
    swapped = array("q", numbers)
    swapped.byteswap()
    return swapped.tobytes()

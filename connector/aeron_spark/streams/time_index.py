"""The time index of a partition: finds transactions by commit time and by position, and commit times. Pure.

An entry is one transaction, or after thinning several consecutive ones, which are *joined*: the commit time of the
*last* one, and the start of the *first* one. So a search never returns a position after the wanted transaction. After
thinning the position may be earlier than that, by less than the step of the thinning, and by at most the bytes to which
the caller limits it. The last transaction is never joined.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from aeron_spark.errors import DataFormatError

SECOND_NS: Final = 1_000_000_000
# (age, step) in ns: of the entries older than the age, one remains in each step. The last hour stays unchanged; a year
# with one commit per second has about 10,000 entries. A step is at most 0.14 % of the age, see ``retention``.
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
        self._joined = bytearray()  # 1 for an entry of several transactions

    def __len__(self) -> int:
        return len(self._times)

    def add(self, time_ns: int, begin: int) -> None:
        """Add a transaction that is later than all others, and begins at the end of the one before."""
        self._times.append(time_ns)
        self._begins.append(begin)
        self._joined.append(0)

    def find(self, time_ns: int) -> int | None:
        """Return the start of the first transaction committed at or after ``time_ns``, or None."""
        index = bisect_left(self._times, time_ns)
        return self._begins[index] if index < len(self._times) else None

    def begin_after(self, position: int) -> int | None:
        """Return the start of the first transaction that begins at or after ``position``, but at most the last one's.

        If ``position`` is inside of joined transactions, return the start of these. None without transactions.
        """
        index = bisect_left(self._begins, position)
        if index == len(self._begins) or (index and self._begins[index] != position and self._joined[index - 1]):
            index -= 1
        return self._begins[index] if self._begins else None

    def begin_before(self, position: int) -> int | None:
        """Return the start of the last transaction, or of joined ones, that begins at or before ``position``."""
        index = bisect_right(self._begins, position) - 1
        return self._begins[index] if index >= 0 else None

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
            del self._joined[:count]
        if self._begins and self._begins[0] < start:
            self._begins[0] = start

    def clear(self) -> None:
        """Remove all transactions."""
        self._times, self._begins, self._joined = array("q"), array("q"), bytearray()

    def thin(self, now_ns: int, max_bytes: int = 0) -> int:
        """Join old entries by ``THINNING``; return the number of removed entries.

        The transactions of a joined entry have at most ``max_bytes`` bytes together; 0 is no limit.
        """
        times, begins, joined = array("q"), array("q"), bytearray()
        last = None
        for index, (time_ns, begin) in enumerate(zip(self._times, self._begins, strict=True)):
            step = _step(now_ns - time_ns)
            bucket = (step, time_ns // step) if step else None
            if bucket is not None and bucket == last and self._may_join(index, begins[-1], max_bytes):
                times[-1] = time_ns
                joined[-1] = 1
            else:
                times.append(time_ns)
                begins.append(begin)
                joined.append(self._joined[index])
            last = bucket
        removed = len(self._times) - len(times)
        self._times, self._begins, self._joined = times, begins, joined
        return removed

    def _may_join(self, index: int, begin: int, max_bytes: int) -> bool:
        """Whether an entry may be joined to those before it, from ``begin`` on."""
        after = index + 1
        return after < len(self._begins) and (not max_bytes or self._begins[after] - begin <= max_bytes)

    def to_bytes(self) -> tuple[bytes, bytes, bytes]:
        """Return times and positions, int64 little-endian, and a byte for each entry: 1 if it is joined."""
        return _little(self._times), _little(self._begins), bytes(self._joined)

    @classmethod
    def from_bytes(cls, times: bytes, begins: bytes, joined: bytes = b"") -> TimeIndex:
        """Return the index that ``to_bytes`` encoded. Raises DataFormatError for other bytes.

        Without ``joined``, which earlier releases did not write, each entry but the last one counts as joined.
        """
        index = cls()
        count = len(times) // 8
        if len(times) != len(begins) or len(times) % 8 or len(joined) not in (0, count):
            raise DataFormatError(
                f"a time index has {len(times)} bytes of times, {len(begins)} bytes of positions and {len(joined)} "
                "marks of joined entries, expected equal multiples of 8, and no marks or one for 8 bytes",
                remedy="Restore the stream's journal from a copy.",
            )
        index._joined.extend(joined or b"\1" * (count - 1) + b"\0" * min(count, 1))
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

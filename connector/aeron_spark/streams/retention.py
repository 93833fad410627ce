"""Decides from which transaction on a partition is readable: by retention, but not under a reader's lease. Pure.

The *start* of a partition is the start of a transaction, or the committed end. The files follow in whole segments.

The promise: a row beyond the retention is unreadable within 2 s and 0.2 % of the retention. The server decides each
second. It writes a start to the journal, with an fsync, when rows of ``MOVE_PART`` of the retention are due, or a
segment is free. Two rows that the time index has joined count as one: by time they are at most 0.14 % of their age
apart (``time_index.THINNING``), by bytes they are at most ``JOIN_PART`` of the retention. The second limit does not
hold for rows that were joined before the stream had this retention: a recording does not show where transactions begin.

All positions are in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from aeron_spark.streams.definition import Definition
from aeron_spark.streams.time_index import SECOND_NS, TimeIndex

MOVE_PART: Final = 1 / 2_000
JOIN_PART: Final = 1 / 1_000
MAX_DRIFT_NS: Final = 60 * SECOND_NS  # a clock that NTP slews stays within seconds; a larger difference is a step


class AgeClock:
    """The time by which a server deletes by age: the wall clock, but without its steps ahead.

    A wall clock that goes days ahead, and back, would otherwise delete the rows of these days. ``wall`` returns ns
    since 1970; ``steady`` returns seconds, never steps, and measures how much time has passed. A step back counts at
    once. Threads may share a clock.
    """

    def __init__(self, steady: Callable[[], float], wall: Callable[[], int]) -> None:
        self._steady = steady
        self._wall = wall
        self._trusted = steady(), wall()  # one value, because threads replace it without a lock

    def now_ns(self) -> int:
        """Return the time in ns since 1970: that of the wall clock, or less after its step ahead."""
        steady, wall_ns = self._steady(), self._wall()
        at, at_ns = self._trusted
        expected_ns = at_ns + int((steady - at) * SECOND_NS)
        if wall_ns - expected_ns > MAX_DRIFT_NS:
            return expected_ns
        self._trusted = steady, wall_ns
        return wall_ns

    @property
    def ahead_s(self) -> float:
        """The seconds by which the wall clock has stepped ahead; 0 without a step."""
        return max(0, self._wall() - self.now_ns()) / SECOND_NS


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions at which a recording's segments begin; ``start`` is any position in the first one."""

    start: int
    term_length: int
    segment_length: int

    def segment_base(self, position: int) -> int:
        """Return the start of the segment with ``position``, by the archive's rule."""
        origin = self.start - self.start % self.term_length
        return position - (position - origin) % self.segment_length

    def purge_base(self, start: int, end: int) -> int:
        """Return the position before which segments may be deleted, of a recording to ``end``, readable from ``start``.

        The archive keeps the last segment with bytes.
        """
        return self.segment_base(min(start, max(self.start, end - 1)))


class RetentionLimits(NamedTuple):
    """A retention: bytes of a partition, and seconds. 0 is no limit."""

    bytes: int
    seconds: float

    @classmethod
    def of(cls, definition: Definition) -> RetentionLimits:
        """Return the retention of a stream."""
        return cls(definition.retention_bytes, definition.retention_seconds)

    @property
    def max_joined_bytes(self) -> int:
        """The bytes of transactions that the time index may join at most; 0 is no limit."""
        return max(1, int(self.bytes * JOIN_PART)) if self.bytes else 0

    def start(self, times: TimeIndex, end: int, now_ns: int, *, end_then: int | None = None) -> int:
        """Return the position from which the retention keeps rows at ``now_ns`` (since 1970); 0 without a limit.

        ``end`` is the committed end, ``end_then`` that at ``now_ns`` if this is in the past. The last transaction stays
        by bytes alone; by time it goes.
        """
        by_bytes = by_time = 0
        size = end if end_then is None else end_then
        if self.bytes and size > self.bytes:
            by_bytes = times.begin_after(size - self.bytes) or 0
        if self.seconds:
            found = times.find(now_ns - int(self.seconds * SECOND_NS))
            by_time = end if found is None else found
        return max(by_bytes, by_time)

    def is_due(self, times: TimeIndex, start: int, wanted: int, now_ns: int) -> bool:
        """Whether rows of ``MOVE_PART`` of the retention are between ``start`` and ``wanted``, and may go."""
        if self.bytes and wanted - start >= self.bytes * MOVE_PART:
            return True
        committed_ns = times.time_of(start)
        return bool(
            self.seconds
            and committed_ns is not None
            and now_ns - committed_ns >= self.seconds * (1 + MOVE_PART) * SECOND_NS
        )


def allowed_start(
    times: TimeIndex, wanted: int, *, start: int, end: int, leased: int | None = None, overdue: int = 0
) -> int:
    """Return the start of the last transaction up to ``wanted`` and ``leased``, or ``end``; never before ``start``.

    ``start`` and ``end`` are the committed ones, ``leased`` is the lowest position under a live lease. Rows before
    ``overdue`` are not protected by leases.
    """
    limit = wanted if leased is None else min(wanted, max(leased, overdue))
    if limit >= end:
        return end
    return max(start, times.begin_before(limit) or 0)

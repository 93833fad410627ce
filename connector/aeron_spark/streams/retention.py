"""Decides which segments of a partition are deleted: by retention, but not under a reader's lease. Pure.

All positions are in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aeron_spark.streams.time_index import SECOND_NS


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


def retention_start(end: int, *, retention_bytes: int, by_time: int | None) -> int:
    """Return the position from which the retention keeps rows of a partition that ends at ``end``.

    ``retention_bytes`` 0 is no limit by size. ``by_time`` is the start of the first transaction within the retention
    time, or None for no limit by time.
    """
    by_bytes = end - retention_bytes if retention_bytes else 0
    return max(0, by_bytes, by_time or 0)


def retention_starts(
    ends: Sequence[int], position_at: Callable[[int], Sequence[int]], now_ns: int, *, retention_bytes: int,
    retention_seconds: float,
) -> dict[int, int]:  # fmt: skip
    """Return, by partition, the position from which the retention keeps rows; empty without a retention.

    ``ends`` are the ends of the partitions at ``now_ns`` (since 1970), ``position_at`` returns their positions at a
    time in nanoseconds. 0 is no limit.
    """
    if not retention_bytes and not retention_seconds:
        return {}
    times = position_at(now_ns - int(retention_seconds * SECOND_NS)) if retention_seconds else [0] * len(ends)
    return {
        index: retention_start(end, retention_bytes=retention_bytes, by_time=by_time)
        for index, (end, by_time) in enumerate(zip(ends, times, strict=True))
    }


def purge_to(
    wanted: int, layout: Layout, *, start: int, end: int, leased: int | None = None, overdue: int = 0
) -> int:  # fmt: skip
    """Return the partition's new start: the start of the last segment that is not after ``wanted`` and ``leased``.

    ``start`` and ``end`` are the committed ones, ``leased`` is the lowest position under a live lease. Rows before
    ``overdue`` are not protected by leases. The segment with the committed end always stays. Returns ``start`` if no
    segment can be deleted.
    """
    limit = min(wanted, end) if leased is None else min(wanted, end, max(leased, overdue))
    return max(start, layout.segment_base(limit)) if limit > start else start

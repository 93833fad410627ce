"""Decides which segments of a partition are deleted: by retention, but not under a reader's lease. Pure.

All positions are in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aeron_spark.errors import RefusedError


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


def purge_to(wanted: int, layout: Layout, *, start: int, end: int, leased: int | None) -> int:
    """Return the partition's new start: the start of the last segment that is not after ``wanted`` and ``leased``.

    ``start`` and ``end`` are the committed ones, ``leased`` is the lowest position under a live lease. The segment with
    the committed end always stays. Returns ``start`` if no segment can be deleted.
    """
    limit = min(wanted, end) if leased is None else min(wanted, end, leased)
    return max(start, layout.segment_base(limit)) if limit > start else start


MAX_LEASES: Final = 10_000  # a lease has a few hundred bytes, and lasts until its expiry if its reader dies


@dataclass(frozen=True, slots=True)
class ReaderLease:
    """The lease of one reader: by partition the first leased position, and the time of expiry."""

    positions: Mapping[int, int]
    until: float  # seconds, monotonic


class ReaderLeases:
    """The leases of one stream, by reader id. ``now`` is in seconds, monotonic. Not safe for concurrent use."""

    def __init__(self, max_leases: int = MAX_LEASES) -> None:
        self._max_leases = max_leases
        self._leases: dict[str, ReaderLease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def renew(self, reader: str, positions: Mapping[int, int], seconds: float, now: float) -> None:
        """Replace the lease of ``reader`` by one of ``seconds``; without positions, or with 0 seconds, end its lease.

        Raises RefusedError if too many readers have leases.
        """
        if seconds <= 0 or not positions:
            self._leases.pop(reader, None)
            return
        if reader not in self._leases and len(self._leases) >= self._max_leases:
            self.expire(now)
            if len(self._leases) >= self._max_leases:
                raise RefusedError(
                    f"{len(self._leases)} readers have leases of this stream, limit {self._max_leases}",
                    remedy="Close some readers, or wait until the leases of ended readers expire.",
                )
        self._leases[reader] = ReaderLease(dict(positions), now + seconds)

    def release(self, reader: str) -> None:
        """End the reader's lease, if any."""
        self._leases.pop(reader, None)

    def lowest_position(self, partition: int, now: float) -> int | None:
        """Return the lowest position of ``partition`` under a live lease, or None."""
        leased = [
            lease.positions[partition]
            for lease in self._leases.values()
            if lease.until > now and partition in lease.positions
        ]
        return min(leased, default=None)

    def expire(self, now: float) -> list[str]:
        """Remove expired leases; return the ids of their readers."""
        ended = [reader for reader, lease in self._leases.items() if lease.until <= now]
        for reader in ended:
            del self._leases[reader]
        return ended

    def live(self, now: float) -> dict[str, ReaderLease]:
        """Return the leases that have not expired, by reader id."""
        return {reader: lease for reader, lease in self._leases.items() if lease.until > now}

"""What of a partition may go: whole segments, behind nobody who still reads them. Pure; positions in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aeron_spark.errors import RefusedError


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the segments of a recording begin: ``start`` is a position in its first one, such as its start position."""

    start: int
    term_length: int
    segment_length: int

    def segment_base(self, position: int) -> int:
        """Return where the segment that holds ``position`` begins, as the archive reckons it."""
        origin = self.start - self.start % self.term_length
        return position - (position - origin) % self.segment_length


def wanted_start(end: int, *, retention_bytes: int, by_time: int | None) -> int:
    """Return from where on the retention keeps a partition that ends at ``end``: both limits hold, 0 and None are none.

    ``by_time`` is the ledger's answer where what was committed within the retention time begins.
    """
    by_bytes = end - retention_bytes if retention_bytes else 0
    return max(0, by_bytes, by_time or 0)


def purge_to(wanted: int, layout: Layout, *, start: int, end: int, held: int | None) -> int:
    """Return the partition's new start: the last segment's base at or before ``wanted``, and before what is ``held``.

    ``start`` and ``end`` are the committed ones, ``held`` the lowest position under a live lease. Returns ``start``
    where nothing can go: the segment with the committed end in it always stays.
    """
    limit = min(wanted, end) if held is None else min(wanted, end, held)
    return max(start, layout.segment_base(limit)) if limit > start else start


MOST_LEASES: Final = 10_000  # each is a few hundred bytes; a reader that dies leaves its own until it expires


@dataclass(frozen=True, slots=True)
class ReaderLease:
    """Until ``until`` a reader needs each of these partitions from the position on."""

    positions: Mapping[int, int]
    until: float


class ReaderLeases:
    """The leases of one stream, by reader id; ``now`` is in seconds, monotonic. Not safe for concurrent use."""

    def __init__(self, most: int = MOST_LEASES) -> None:
        self._most = most
        self._leases: dict[str, ReaderLease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def hold(self, reader: str, positions: Mapping[int, int], seconds: float, now: float) -> None:
        """Replace what ``reader`` holds by ``positions``, for ``seconds`` from now; none of either ends its lease.

        Raises RefusedError where too many readers hold one.
        """
        if seconds <= 0 or not positions:
            self._leases.pop(reader, None)
            return
        if reader not in self._leases and len(self._leases) >= self._most:
            self.expire(now)
            if len(self._leases) >= self._most:
                raise RefusedError(
                    f"{len(self._leases)} readers hold leases of this stream, which is the limit",
                    remedy="Close some readers, or wait until the leases of dead ones expire",
                )
        self._leases[reader] = ReaderLease(dict(positions), now + seconds)

    def release(self, reader: str) -> None:
        """End the reader's lease, if it has one."""
        self._leases.pop(reader, None)

    def floor(self, partition: int, now: float) -> int | None:
        """Return the lowest position of ``partition`` under a live lease, or None."""
        held = [
            lease.positions[partition]
            for lease in self._leases.values()
            if lease.until > now and partition in lease.positions
        ]
        return min(held, default=None)

    def expire(self, now: float) -> list[str]:
        """Forget the leases that have ended by ``now``; return whose they were."""
        ended = [reader for reader, lease in self._leases.items() if lease.until <= now]
        for reader in ended:
            del self._leases[reader]
        return ended

    def live(self, now: float) -> dict[str, ReaderLease]:
        """Return the leases that have not ended."""
        return {reader: lease for reader, lease in self._leases.items() if lease.until > now}

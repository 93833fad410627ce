"""What of a partition may go: whole segments, behind nobody who still reads them. Pure; positions in bytes."""

from __future__ import annotations

from dataclasses import dataclass


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

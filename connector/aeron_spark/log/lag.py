"""The lag of a query: the bytes that it has not read yet, and how long ago the oldest of them were committed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aeron_spark.log.offsets import Offset


@dataclass(frozen=True, slots=True)
class ReadLag:
    """The unread rows of a stream: by recording the bytes of its log, and the age of the first unread row in seconds.

    Both mappings have only recordings with unread bytes. ``seconds`` is None for a log without commit times: the
    archives of the direct route have none.
    """

    bytes: Mapping[str, int]
    seconds: Mapping[str, float] | None = None

    @property
    def total_bytes(self) -> int:
        """Bytes over all recordings."""
        return sum(self.bytes.values())

    @property
    def max_seconds(self) -> float | None:
        """The age of the oldest unread row; 0 if all rows are read, None without commit times."""
        return None if self.seconds is None else max(self.seconds.values(), default=0.0)

    def to_dict(self) -> dict[str, object]:
        """Return plain values for a query's progress; without commit times there is no ``seconds``."""
        partitions: dict[str, object] = {}
        for key, count in sorted(self.bytes.items()):
            age = {} if self.seconds is None else {"seconds": self.seconds.get(key, 0.0)}
            partitions[key] = {"bytes": count, **age}
        total: dict[str, object] = {"bytes": self.total_bytes, "partitions": partitions}
        if self.max_seconds is not None:
            total["seconds"] = self.max_seconds
        return total


def unread_bytes(ends: Mapping[str, int], read: Offset) -> dict[str, int]:
    """Return the bytes between ``read`` and the ends of the recordings, by key.

    A recording that is not in ``read`` counts from position 0. An incomplete message at the end of a finished
    recording does not count.
    """
    found = {}
    for key, end in ends.items():
        position = read.position(key) or 0
        finished = read.done.get(key)
        if finished is not None and finished.seen == end:
            position = end
        found[key] = max(0, end - position)
    return found

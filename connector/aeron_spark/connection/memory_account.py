"""Shares the memory that the connections of an endpoint hold: decides which of them pause, and which one ends. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final, Generic, TypeVar

PAUSED_S: Final = 2.0  # less than a silent link lasts
ASSURED_BYTES: Final = 256 * 1024  # of each connection, which is not paused or ended for so little

H = TypeVar("H", bound=Hashable)


class MemoryAccount(Generic[H]):
    """The bytes that connections make the endpoint hold: requests, messages, transfers and unsent responses.

    Above three quarters of ``limit`` (bytes; 0 is no limit) the largest holders pause, until the others hold less than
    half of it. A paused holder continues when it and the others that are not paused hold less than half. The largest
    holder ends at the limit, and when holders have been paused for PAUSED_S: what a paused holder keeps may depend on
    data that is not read. For one thread, except the attributes. ``now`` is in seconds, monotonic.
    """

    def __init__(self, limit: Callable[[], int], assured: int = ASSURED_BYTES) -> None:
        """``limit`` may change; the next review applies it."""
        self._limit: Final = limit
        self.assured: Final = assured
        self.held = 0
        """Bytes that all holders had at the last review."""
        self.paused: frozenset[H] = frozenset()
        """The holders that are paused."""
        self._paused_since = 0.0  # while there is a paused holder

    @property
    def limit(self) -> int:
        """The present limit, in bytes; 0 is no limit."""
        return self._limit()

    @property
    def is_full(self) -> bool:
        """Whether the holders had the limit at the last review, so that no further request is accepted."""
        return bool(self.limit) and self.held >= self.limit

    def review(self, held: Mapping[H, int], now: float) -> H | None:
        """Decide by the bytes of each holder who is paused from now on; return the holder that must end, or None."""
        self.held = sum(held.values())
        if not self.limit or self.held < self.limit // 2:
            self.paused = frozenset()
            return None
        largest_first = sorted((one for one in held if held[one] > self.assured), key=held.__getitem__, reverse=True)
        paused = {one for one in largest_first if one in self.paused}
        others = self.held - sum(held[one] for one in paused)
        if self.held >= self.limit * 3 // 4:
            for one in largest_first:
                if others < self.limit // 2:
                    break
                if one not in paused:
                    paused.add(one)
                    others -= held[one]
        # A paused holder keeps what only its peer's acknowledgements or further data end, so each must have its turn.
        for one in reversed(largest_first):
            if one in paused and others + held[one] < self.limit // 2:
                paused.remove(one)
                others += held[one]
        if not self.paused:
            self._paused_since = now
        self.paused = frozenset(paused)
        takes_too_long = bool(paused) and now - self._paused_since >= PAUSED_S
        if not largest_first or not (self.is_full or takes_too_long):
            return None
        self._paused_since = now  # of the others
        return largest_first[0]

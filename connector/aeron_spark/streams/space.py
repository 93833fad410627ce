"""How many bytes all stages of a server may take together: what is not committed must not fill the disk."""

from __future__ import annotations

import threading

from aeron_spark.errors import RefusedError, UsageError


class Space:
    """A number of bytes to share; 0 is without limit. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken = 0
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        """Bytes that are not given back yet."""
        return self._taken

    def take(self, count: int, *, force: bool = False) -> None:
        """Take ``count`` bytes; ``force`` counts what is there already. RefusedError, and none taken, if it is full."""
        with self._lock:
            if self.limit and not force and self._taken + count > self.limit:
                raise RefusedError(
                    f"the server's room for rows that are not committed is full: {self._taken} of {self.limit} bytes"
                    f" are taken, and {count} more were asked for",
                    remedy="Commit smaller transactions, or fewer at once, or raise the server's stage limit; abandoned"
                    " ones make room when they expire",
                )
            self._taken += count

    def give(self, count: int) -> None:
        """Give ``count`` bytes back."""
        with self._lock:
            if count > self._taken:
                raise UsageError(f"{count} bytes are given back, but only {self._taken} are taken")
            self._taken -= count

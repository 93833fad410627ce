"""The memory of large responses that an endpoint encodes and sends at the same time, for all its connections."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from aeron_spark.connection.memory_account import ASSURED_BYTES


class ResponseMemory:
    """The bytes of the large responses that are encoded or sent now. Thread-safe.

    All together have at most ``limit()`` bytes; 0 is no limit. Responses of up to ``assured`` bytes always have room
    and do not count.
    """

    def __init__(self, limit: Callable[[], int], assured: int = ASSURED_BYTES) -> None:
        self._limit: Final = limit
        self._assured: Final = assured
        self._lock: Final = threading.Lock()
        self._held: Final[dict[int, int]] = {}  # by the number of the response

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, number: int, size: int) -> bool:
        """Hold ``size`` bytes for a response, in the place of those that it has; return False if they have no room.

        Without room nothing changes. ``release`` must follow in any case.
        """
        limit = self._limit()
        if size <= self._assured or not limit:
            return True
        with self._lock:
            others = sum(self._held.values()) - self._held.get(number, 0)
            if others and others + size > limit:
                return False
            self._held[number] = size
            return True

    def release(self, number: int) -> None:
        """Give back the bytes of a response, if it has some."""
        with self._lock:
            self._held.pop(number, None)

"""Work in order, off the polling thread: each connection has a lane, and all lanes share one pool of threads."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

LOG: Final = logging.getLogger("aeron_spark.endpoint")

Work = Callable[[], object]  # what it returns is of no interest


class SerialExecutor:
    """Runs what it is given one after the other, in order. Thread-safe. What work raises is logged.

    ``weight`` is in bytes. A lane with more than ``most`` of them is ``full``; it takes more all the same, for what has
    arrived is here. ``on_room`` is called when a full lane has become less than half full.
    """

    def __init__(self, pool: Executor, most: int, on_room: Callable[[], None]) -> None:
        self._pool = pool
        self._most = most
        self._on_room = on_room
        self._lock = threading.Lock()
        self._work: deque[tuple[Work, int]] = deque()
        self._weight = 0
        self._was_full = False
        self._running = False

    @property
    def full(self) -> bool:
        """Whether its source should be held up."""
        return self._weight > self._most

    def beyond(self, more: int) -> bool:
        """Whether it holds so many bytes more than what makes it full."""
        return self._weight > self._most + more

    def weigh(self, weight: int) -> None:
        """Count what is held for the work that waits, or, for less than 0, what no longer is."""
        with self._lock:
            self._weight += weight
            self._was_full = self._was_full or self.full

    def add(self, work: Work, weight: int = 0) -> bool:
        """Run ``work`` after everything added before; False where nobody will, because the pool was shut down."""
        with self._lock:
            self._work.append((work, weight))
            self._weight += weight
            self._was_full = self._was_full or self.full
            if self._running:
                return True
            self._running = True
        try:
            self._pool.submit(self._run)
        except RuntimeError:  # the pool was shut down: its endpoint is closed, and nobody listens
            self._running = False
            return False
        return True

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._work:
                    self._running = False
                    return
                work, weight = self._work.popleft()
            try:
                work()
            except BaseException:  # also SystemExit of a listener: the lane goes on with what comes next
                LOG.exception("a listener's lane met an error")
            with self._lock:
                self._weight -= weight
                room = self._was_full and self._weight * 2 < self._most
                self._was_full = self._was_full and not room
            if room:
                self._on_room()

"""Deadlines of futures, which the event loop ends: a wait such as that for commits needs no thread."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from aeron_spark.connection.loop import IDLE_WAIT_S
from aeron_spark.waiting import resolve

T = TypeVar("T")

_MAX_ENDED_DEADLINES: Final = 64  # deadlines of ended futures in the heap before it is rebuilt


class Deadlines:
    """Futures that get a result at their deadline unless they end before. Thread-safe.

    The event loop calls ``expire``, which runs the callbacks of these futures: they must not wait. ``wake`` wakes the
    event loop for a deadline that it could miss while it is idle. ``clock`` gives monotonic seconds.
    """

    def __init__(self, wake: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._wake = wake
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._pending: dict[int, tuple[Future[Any], Any]] = {}  # by number: the future and its result
        self._heap: list[tuple[float, int]] = []  # time and number, also of futures that ended before

    def __len__(self) -> int:
        """Return the number of futures that have not ended."""
        return len(self._pending)

    def add(self, future: Future[T], result: T, seconds: float) -> None:
        """Give ``result`` to the future after ``seconds``, or at once for 0 seconds."""
        if seconds <= 0:
            resolve(future, result)
            return
        if future.done():
            return
        with self._lock:
            number = next(self._numbers)
            self._pending[number] = (future, result)
            heapq.heappush(self._heap, (self._clock() + seconds, number))
        future.add_done_callback(lambda _: self._remove(number))
        if seconds < IDLE_WAIT_S:
            self._wake()

    def expire(self, now: float) -> None:
        """End the futures whose deadline has passed."""
        if not self._heap:  # read without the lock: a deadline that is added meanwhile has time until the next tick
            return
        due = []
        with self._lock:
            while self._heap and self._heap[0][0] <= now:
                _, number = heapq.heappop(self._heap)
                pending = self._pending.pop(number, None)
                if pending is not None:
                    due.append(pending)
        for future, result in due:
            resolve(future, result)

    def is_due(self, now: float) -> bool:
        """Whether :meth:`expire` may have something to do by ``now``."""
        with self._lock:
            return bool(self._heap) and self._heap[0][0] <= now

    def _remove(self, number: int) -> None:
        with self._lock:
            self._pending.pop(number, None)
            if len(self._heap) > 2 * len(self._pending) + _MAX_ENDED_DEADLINES:
                self._heap = [one for one in self._heap if one[1] in self._pending]
                heapq.heapify(self._heap)

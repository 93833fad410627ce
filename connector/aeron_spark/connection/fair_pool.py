"""Threads that several owners share in turn, so that one with much work does not delay the others."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

GROW_S: Final = 0.005
LOG: Final = logging.getLogger("aeron_spark.endpoint")

Work = Callable[[], object]  # the result is dropped


@dataclass(slots=True)
class _Queue:
    """The waiting work of one owner, how much of its work runs, and when the last piece of it began."""

    waiting: deque[tuple[int, Hashable, Work]] = field(default_factory=deque)  # with the work's number and kind
    running: int = 0
    began_at: float = 0.0
    is_ready: bool = False  # it is in the row of owners that wait for a thread


class FairPool:
    """At most ``threads`` threads, of which the work of one owner takes at most ``threads_per_owner``. Thread-safe.

    A free thread takes the next work of the owner that has waited longest since its last turn. An owner gets another
    thread when its last work has run for GROW_S: pieces of short work gain nothing from several threads, of which
    Python runs one at a time, and delay all other threads. Call ``tick`` from time to time while work waits.

    ``clock`` is in seconds, monotonic.
    """

    def __init__(
        self, threads: int, threads_per_owner: int, name: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock: Final = clock
        self.threads_per_owner = threads_per_owner
        """May change; work that runs continues."""
        self._pool: Final = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock: Final = threading.Lock()
        self._queues: Final[dict[Hashable, _Queue]] = {}  # of owners with waiting or running work
        self._ready: Final[deque[Hashable]] = deque()
        self._waiting: Final[Counter[Hashable]] = Counter()  # waiting work by its kind
        self._next_number = 0
        self._unfinished: Final[set[int]] = set()  # numbers of the work that waits or runs
        self._is_shut_down = False

    def submit(self, owner: Hashable, work: Work, kind: Hashable = None) -> None:
        """Run ``work`` when it is the owner's turn. Raises RuntimeError after ``shutdown``.

        ``kind`` is for ``waiting``.
        """
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("the pool was shut down")
            queue = self._queues.setdefault(owner, _Queue())
            queue.waiting.append((self._next_number, kind, work))
            self._waiting[kind] += 1
            self._unfinished.add(self._next_number)
            self._next_number += 1
            if self._make_ready(owner, queue):
                self._pool.submit(self._run)

    def tick(self) -> None:
        """Give another thread to each owner whose work waits, and whose last work has run for GROW_S."""
        with self._lock:
            for owner, queue in self._queues.items():
                if self._make_ready(owner, queue):
                    self._pool.submit(self._run)

    @property
    def has_waiting(self) -> bool:
        """Whether work waits, so that ``tick`` is needed."""
        with self._lock:
            return any(queue.waiting for queue in self._queues.values())

    def drop(self, owner: Hashable) -> int:
        """Drop the waiting work of an owner that has ended; return how much it was. Running work continues."""
        with self._lock:
            return self._drop(owner)

    def waiting(self) -> dict[Hashable, int]:
        """Return how much work waits for a thread, by its kind."""
        with self._lock:
            return {kind: count for kind, count in self._waiting.items() if count}

    def mark(self) -> int:
        """Return a mark between the work submitted so far, and later work; for ``unfinished``."""
        with self._lock:
            return self._next_number

    def unfinished(self, mark: int) -> int:
        """Return how much of the work that was submitted before ``mark`` waits or runs."""
        with self._lock:
            return sum(number < mark for number in self._unfinished)

    def shutdown(self) -> None:
        """Run no further work, and do not wait for the work that runs."""
        with self._lock:
            self._is_shut_down = True
            for owner in list(self._queues):
                self._drop(owner)
            self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        """Run work as long as an owner is ready. There is a loop for each owner that is ready."""
        while True:
            with self._lock:
                taken = self._take()
            if taken is None:
                return
            owner, queue, number, work = taken
            try:
                work()
            except BaseException:  # also SystemExit: the loop must continue, because other work may wait for its end
                LOG.exception("work on a thread of the pool failed")
            with self._lock:
                queue.running -= 1
                self._unfinished.discard(number)
                self._make_ready(owner, queue)
                self._forget_idle(owner, queue)

    def _drop(self, owner: Hashable) -> int:
        queue = self._queues.get(owner)
        if queue is None:
            return 0
        count = len(queue.waiting)
        self._unfinished.difference_update(number for number, _, _ in queue.waiting)
        self._waiting.subtract(kind for _, kind, _ in queue.waiting)
        queue.waiting.clear()
        if queue.is_ready:
            queue.is_ready = False
            self._ready.remove(owner)
        self._forget_idle(owner, queue)
        return count

    def _take(self) -> tuple[Hashable, _Queue, int, Work] | None:
        while self._ready:
            owner = self._ready.popleft()
            queue = self._queues.get(owner)
            if queue is None:
                continue
            queue.is_ready = False
            if queue.waiting:
                number, kind, work = queue.waiting.popleft()
                self._waiting[kind] -= 1
                queue.running += 1
                queue.began_at = self._clock()
                return owner, queue, number, work
        return None

    def _make_ready(self, owner: Hashable, queue: _Queue) -> bool:
        """Put an owner into the row of those that wait for a thread, if it may have one; return whether it was."""
        if not queue.waiting or queue.is_ready or queue.running >= self.threads_per_owner or self._is_shut_down:
            return False
        if queue.running and self._clock() - queue.began_at < GROW_S:
            return False
        queue.is_ready = True
        self._ready.append(owner)
        return True

    def _forget_idle(self, owner: Hashable, queue: _Queue) -> None:
        if not queue.waiting and not queue.running and self._queues.get(owner) is queue:
            del self._queues[owner]

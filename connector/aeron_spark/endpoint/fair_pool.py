"""Threads that several shares of work take in turn, so that one with much work does not delay the others."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final

GROW_S: Final = 0.005
RECENT_S: Final = 1.0
COMPUTES: Final = 0.25  # processor seconds a second; with less, the work of a share mostly waits
COMPUTING_THREADS: Final = max(1, (os.cpu_count() or 1) // 4)  # work that leaves the interpreter can use more than one
LOG: Final = logging.getLogger("aeron_spark.endpoint")

Work = Callable[[], object]  # the result is dropped


@dataclass(slots=True)
class _Share:
    """The waiting work of the owners of one share, how much of its work runs, and when the last piece of it began.

    ``clocks`` are those of the processor time of its threads, with the time that is counted in ``computed_s``, the
    processor seconds since about ``counted_from``.
    """

    counted_from: float
    waiting: dict[Hashable, deque[tuple[int, Hashable, Work]]] = field(default_factory=dict)
    """By owner, in the order of their turns: the work with its number and kind."""
    running: int = 0
    began_at: float = 0.0
    computed_s: float = 0.0
    clocks: dict[int, float] = field(default_factory=dict)
    is_ready: bool = False  # it is in the row of shares that wait for a thread

    def computes(self, now: float) -> bool:
        """Whether its work uses the processor for much of the time. What was long ago counts little."""
        for clock, counted in self.clocks.items():
            used = time.clock_gettime(clock)
            self.computed_s += used - counted
            self.clocks[clock] = used
        elapsed = now - self.counted_from
        computes = self.computed_s >= COMPUTES * elapsed
        if elapsed > RECENT_S:
            self.computed_s *= RECENT_S / elapsed
            self.counted_from = now - RECENT_S
        return computes

    def take(self) -> tuple[int, Hashable, Work]:
        """Take the next work of the owner whose turn it is. There must be one."""
        owner, queue = next(iter(self.waiting.items()))
        taken = queue.popleft()
        del self.waiting[owner]
        if queue:  # its next turn comes after those of the others
            self.waiting[owner] = queue
        return taken


class FairPool:
    """The threads of ``pool``, of which the work of one share takes at most ``threads_per_share``. Thread-safe.

    The owners of work, such as connections, belong to shares, such as the keys of their clients. A free thread takes
    work of the share that has waited longest since its last turn, and of its owners that of the one that has. A share
    gets another thread when its last work has run for GROW_S: pieces of short work gain nothing from several threads,
    of which Python runs one at a time, and delay all other threads. For the same reason a share whose work computes
    gets no more than COMPUTING_THREADS while other shares have work. Call ``tick`` from time to time while work waits.

    ``clock`` is in seconds, monotonic.
    """

    def __init__(
        self, pool: Executor, threads_per_share: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock: Final = clock
        self.threads_per_share = threads_per_share
        """Return the limit, which may change; work that runs continues."""
        self._pool: Final = pool
        self._lock: Final = threading.Lock()
        self._shares: Final[dict[Hashable, _Share]] = {}  # with waiting or running work
        self._ready: Final[deque[Hashable]] = deque()
        self._waiting: Final[Counter[Hashable]] = Counter()  # waiting work by its kind
        self._next_number = 0
        self._unfinished: Final[set[int]] = set()  # numbers of the work that waits or runs
        self._is_shut_down = False
        self._last_share: Hashable = None  # that submitted work
        self._alternated_at = -RECENT_S  # when another share than before did

    def submit(self, share: Hashable, work: Work, *, owner: Hashable = None, kind: Hashable = None) -> None:
        """Run ``work`` when it is the turn of the share, and in it of the owner. Raises RuntimeError after shutdown.

        ``kind`` is for ``waiting``.
        """
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("the pool was shut down")
            now = self._clock()
            found = self._shares.get(share)
            if found is None:
                found = self._shares[share] = _Share(now)
            if share != self._last_share:
                self._last_share, self._alternated_at = share, now
            found.waiting.setdefault(owner, deque()).append((self._next_number, kind, work))
            self._waiting[kind] += 1
            self._unfinished.add(self._next_number)
            self._next_number += 1
            if self._make_ready(share, found):
                self._pool.submit(self._run)

    def tick(self) -> None:
        """Give another thread to each share whose work waits, and whose last work has run for GROW_S."""
        with self._lock:
            for share, found in self._shares.items():
                if self._make_ready(share, found):
                    self._pool.submit(self._run)

    @property
    def has_waiting(self) -> bool:
        """Whether work waits, so that ``tick`` is needed."""
        with self._lock:
            return any(found.waiting for found in self._shares.values())

    def drop(self, share: Hashable, owner: Hashable = None) -> int:
        """Drop the waiting work of an owner that has ended; return how much it was. Running work continues."""
        with self._lock:
            found = self._shares.get(share)
            return 0 if found is None else self._drop(share, found, owner)

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
            for share, found in list(self._shares.items()):
                for owner in list(found.waiting):
                    self._drop(share, found, owner)
            self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        """Run work as long as a share is ready. There is a loop for each share that is ready."""
        clock = _clock_of_this_thread()
        while True:
            with self._lock:
                taken = self._take(clock)
            if taken is None:
                return
            share, found, number, work = taken
            try:
                work()
            except BaseException:  # also SystemExit: the loop must continue, because other work may wait for its end
                LOG.exception("work on a thread of the pool failed")
            with self._lock:
                found.running -= 1
                if clock is not None:
                    found.computed_s += time.clock_gettime(clock) - found.clocks.pop(clock)
                self._unfinished.discard(number)
                self._make_ready(share, found)
                self._forget_idle(share, found)

    def _drop(self, share: Hashable, found: _Share, owner: Hashable) -> int:
        queue = found.waiting.pop(owner, ())
        self._unfinished.difference_update(number for number, _, _ in queue)
        self._waiting.subtract(kind for _, kind, _ in queue)
        if found.is_ready and not found.waiting:
            found.is_ready = False
            self._ready.remove(share)
        self._forget_idle(share, found)
        return len(queue)

    def _take(self, clock: int | None) -> tuple[Hashable, _Share, int, Work] | None:
        if not self._ready:
            return None
        share = self._ready.popleft()
        found = self._shares[share]
        found.is_ready = False
        number, kind, work = found.take()
        self._waiting[kind] -= 1
        found.running += 1
        found.began_at = self._clock()
        if clock is not None:
            found.clocks[clock] = time.clock_gettime(clock)
        return share, found, number, work

    def _make_ready(self, share: Hashable, found: _Share) -> bool:
        """Put a share into the row of those that wait for a thread, if it may have one; return whether it was."""
        if not found.waiting or found.is_ready or found.running >= self.threads_per_share() or self._is_shut_down:
            return False
        if found.running and not self._may_grow(found, self._clock()):
            return False
        found.is_ready = True
        self._ready.append(share)
        return True

    def _may_grow(self, found: _Share, now: float) -> bool:
        if now - found.began_at < GROW_S:
            return False
        is_alone = now - self._alternated_at >= RECENT_S
        return is_alone or found.running < COMPUTING_THREADS or not found.computes(now)

    def _forget_idle(self, share: Hashable, found: _Share) -> None:
        if not found.waiting and not found.running and self._shares.get(share) is found:
            del self._shares[share]


def _clock_of_this_thread() -> int | None:
    """Return the clock of this thread's processor time, which other threads can read; None where there is none."""
    clock_of = getattr(time, "pthread_getcpuclockid", None)
    return None if clock_of is None else clock_of(threading.get_ident())

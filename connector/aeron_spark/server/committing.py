"""Commits that are at work: a request that repeats one waits for its result instead of beginning another one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait

from aeron_spark.errors import StillWorking
from aeron_spark.streams.model import CommitOutcome


def _wait_for(running: Future[CommitOutcome], seconds: float) -> None:
    wait([running], seconds)


class CommitsUnderWay:
    """The commits of all clients that are at work, each by what it commits. Thread-safe.

    A client repeats its request where it hears nothing for a while, so that it knows whether the server lives.
    ``wait`` waits for a future for some seconds at most.
    """

    def __init__(self, wait: Callable[[Future[CommitOutcome], float], object] = _wait_for) -> None:
        self._wait = wait
        self._lock = threading.Lock()
        self._running: dict[Hashable, Future[CommitOutcome]] = {}

    def run(self, key: Hashable, work: Callable[[], CommitOutcome], seconds: float) -> CommitOutcome:
        """Return ``work()``, or raise its error; where the same commit is at work already, that one's.

        Raises StillWorking where that one does not end within ``seconds``.
        """
        mine: Future[CommitOutcome] = Future()
        with self._lock:
            running = self._running.setdefault(key, mine)
        if running is not mine:
            self._wait(running, max(0.0, seconds))
            if not running.done():
                raise StillWorking("the server is at work on this commit", remedy="Ask again.")
            return running.result()
        try:
            outcome = work()
        except BaseException as error:
            self._end(key)
            mine.set_exception(error)
            raise
        self._end(key)
        mine.set_result(outcome)
        return outcome

    def _end(self, key: Hashable) -> None:
        with self._lock:
            del self._running[key]

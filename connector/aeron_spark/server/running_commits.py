"""The commits that a server runs now, so that a repeated request does not commit again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait

from aeron_spark.errors import StillWorking
from aeron_spark.streams.model import CommitOutcome


def _wait_for(running: Future[CommitOutcome], timeout_s: float) -> None:
    wait([running], timeout_s)


class RunningCommits:
    """The commits that run now, of all clients, so that a repeated request does not commit again. Thread-safe.

    A client repeats its request if it has no response for some time, to find out whether the server lives. ``wait``
    waits for a future with a timeout in seconds. ``check_new`` raises the reason if no further commit may begin.
    """

    def __init__(
        self, wait: Callable[[Future[CommitOutcome], float], object] = _wait_for,
        check_new: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self._wait = wait
        self._check_new = check_new
        self._lock = threading.Lock()
        self._running: dict[Hashable, Future[CommitOutcome]] = {}

    def __len__(self) -> int:
        """Return the number of commits that run."""
        with self._lock:
            return len(self._running)

    def run(self, key: Hashable, commit: Callable[[], CommitOutcome], timeout_s: float) -> CommitOutcome:
        """Return or raise the outcome of ``commit()``; while a commit with the same key runs, wait for its outcome.

        Raises StillWorking if that commit does not end within ``timeout_s``, and the error of ``check_new``.
        """
        own: Future[CommitOutcome] = Future()
        with self._lock:
            if key not in self._running:
                self._check_new()
            running = self._running.setdefault(key, own)
        if running is not own:
            self._wait(running, max(0.0, timeout_s))
            if not running.done():
                raise StillWorking("the commit is still running on the server", remedy="Send the request again.")
            return running.result()
        try:
            outcome = commit()
        except BaseException as error:
            self._end(key)
            own.set_exception(error)
            raise
        self._end(key)
        own.set_result(outcome)
        return outcome

    def _end(self, key: Hashable) -> None:
        with self._lock:
            del self._running[key]

"""The commits that a server runs now, so that a repeated request does not commit again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future

from aeron_spark.connection.deadlines import Deadlines
from aeron_spark.connection.peer_calls import Deferred
from aeron_spark.errors import StillWorking
from aeron_spark.waiting import resolve
from aeron_spark.wire.stream_rpc import Committed


class RunningCommits:
    """The commits that run now, of all clients, so that a repeated request does not commit again. Thread-safe.

    A client repeats its request if it has no response for some time, to find out whether the server lives. No thread
    waits for a commit that runs: ``deadlines`` ends the wait. ``check_new`` raises the reason if no further commit may
    begin.
    """

    def __init__(self, deadlines: Deadlines, check_new: Callable[[], object] = lambda: None) -> None:
        self._deadlines = deadlines
        self._check_new = check_new
        self._lock = threading.Lock()
        self._running: dict[Hashable, Future[Committed]] = {}

    def __len__(self) -> int:
        """Return the number of commits that run."""
        with self._lock:
            return len(self._running)

    def run(
        self, key: Hashable, commit: Callable[[], Committed], timeout_s: float
    ) -> Committed | Deferred:  # fmt: skip
        """Return or raise the outcome of ``commit()``; while a commit with the same key runs, wait for its outcome.

        The wait raises StillWorking if that commit does not end within ``timeout_s``. Raises the error of
        ``check_new``.
        """
        own: Future[Committed] = Future()
        with self._lock:
            if key not in self._running:
                self._check_new()
            running = self._running.setdefault(key, own)
        if running is not own:
            return self._when_ended(running, timeout_s)
        try:
            outcome = commit()
        except BaseException as error:
            self._end(key)
            own.set_exception(error)
            raise
        self._end(key)
        own.set_result(outcome)
        return outcome

    def _when_ended(self, running: Future[Committed], timeout_s: float) -> Deferred:
        waiting: Future[bool] = Future()  # another future: the end of one wait must not end the others
        running.add_done_callback(lambda _: resolve(waiting, True))
        self._deadlines.add(waiting, False, timeout_s)

        def outcome() -> Committed:
            if not waiting.result():
                raise StillWorking("the commit is still running on the server", remedy="Send the request again.")
            return running.result()

        return Deferred(waiting, outcome)

    def _end(self, key: Hashable) -> None:
        with self._lock:
            del self._running[key]

"""A server's store of streams: opened when it is needed, looked after while it is open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from aeron_spark.connection.connection import Connection
from aeron_spark.errors import AeronSparkError, EndedError
from aeron_spark.streams.store import Streams

TICK: Final = 1.0  # seconds between two looks at retention, leases and what was abandoned


class StreamKeeper:
    """``open_store`` may take as long as recovering takes; ``report`` is told what goes wrong unasked.

    ``open_store`` is given a question, whether the server is being closed, and raises AeronSparkError soon after it is:
    ``close`` waits for it.
    """

    def __init__(
        self, open_store: Callable[[Callable[[], bool]], Streams],
        report: Callable[[Connection | None, BaseException], None],
    ) -> None:  # fmt: skip
        self._open_store = open_store
        self._report = report
        self._lock = threading.Lock()
        self._store: Streams | None = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def store(self) -> Streams:
        """The store, opened if need be. Raises why it cannot be, and EndedError once the server is closed."""
        with self._lock:
            if self._ending.is_set():
                raise EndedError("the server is closed", remedy="Start it again")
            if self._store is None:
                self._store = self._open_store(self._ending.is_set)
                self._thread = threading.Thread(target=self._look_after, name="aeron-spark-streams", daemon=True)
                self._thread.start()
            return self._store

    def open_soon(self) -> None:
        """Open it in the background."""
        threading.Thread(target=self._try, name="aeron-spark-recovery", daemon=True).start()

    def close(self) -> None:
        """Close it; what is committed and staged stays on the disk."""
        self._ending.set()
        with self._lock:
            store, self._store, thread = self._store, None, self._thread
        if thread is not None:
            thread.join()
        if store is not None:
            store.close()

    def _try(self) -> None:
        try:
            _ = self.store
        except AeronSparkError as error:
            if not self._ending.is_set():
                self._report(None, error)

    def _look_after(self) -> None:
        said: set[str] = set()
        while not self._ending.wait(TICK):
            wrong = {str(error): error for error in self._tick()}
            for text, error in wrong.items():
                if text not in said:
                    self._report(None, error)
            said = set(wrong)

    def _tick(self) -> Sequence[Exception]:
        store = self._store
        try:
            return [] if store is None else store.tick()
        except Exception as error:  # without its thread the store would have no retention and no expiry
            return [error]

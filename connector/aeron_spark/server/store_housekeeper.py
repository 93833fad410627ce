"""Opens the store of a server's streams, and keeps it in order on a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from aeron_spark.connection.connection import Connection
from aeron_spark.errors import AeronSparkError, EndedError
from aeron_spark.streams.store import StreamStore

HOUSEKEEPING_INTERVAL_S: Final = 1.0  # between two calls of ``StreamStore.tick``: retention, leases, abandoned stages


class StoreHousekeeper:
    """Opens the store at its first use, calls its ``tick`` on a thread, and closes it.

    ``open_store`` recovers the streams, which may take long. Its argument returns whether the server is closing;
    ``open_store`` then raises AeronSparkError soon, because ``close`` waits for it. ``report`` takes the errors of the
    background threads.
    """

    def __init__(
        self, open_store: Callable[[Callable[[], bool]], StreamStore],
        report: Callable[[Connection | None, BaseException], None],
    ) -> None:  # fmt: skip
        self._open_store = open_store
        self._report = report
        self._lock = threading.Lock()
        self._store: StreamStore | None = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def store(self) -> StreamStore:
        """The store, opened at the first use. Raises the error of opening it, and EndedError after ``close``."""
        with self._lock:
            if self._ending.is_set():
                raise EndedError("the server is closed", remedy="Start it again")
            if self._store is None:
                self._store = self._open_store(self._ending.is_set)
                self._thread = threading.Thread(target=self._run_ticks, name="aeron-spark-streams", daemon=True)
                self._thread.start()
            return self._store

    def open_soon(self) -> None:
        """Open the store on a background thread; report an error."""
        threading.Thread(target=self._open_or_report, name="aeron-spark-recovery", daemon=True).start()

    def close(self) -> None:
        """Close the store. Committed and staged rows stay on the disk."""
        self._ending.set()
        with self._lock:
            store, self._store, thread = self._store, None, self._thread
        if thread is not None:
            thread.join()
        if store is not None:
            store.close()

    def _open_or_report(self) -> None:
        try:
            _ = self.store
        except AeronSparkError as error:
            if not self._ending.is_set():
                self._report(None, error)

    def _run_ticks(self) -> None:
        reported: set[str] = set()  # errors of the previous tick, which are not reported again
        while not self._ending.wait(HOUSEKEEPING_INTERVAL_S):
            errors = {str(error): error for error in self._tick()}
            for text, error in errors.items():
                if text not in reported:
                    self._report(None, error)
            reported = set(errors)

    def _tick(self) -> Sequence[Exception]:
        store = self._store
        try:
            return [] if store is None else store.tick()
        except Exception as error:  # the thread must survive: it executes retention and ends leases
            return [error]

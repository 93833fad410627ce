"""Opens the store of a server's streams, and keeps it in order on a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

from aeron_spark.connection.runner import ConnectionRunner
from aeron_spark.errors import EndedError
from aeron_spark.streams.store import StreamStore
from aeron_spark.waiting import result_within

HOUSEKEEPING_INTERVAL_S: Final = 1.0  # between two calls of ``StreamStore.tick``: retention, leases, abandoned stages


class StoreHousekeeper:
    """Opens the store at its first use, calls its ``tick`` on a thread, and closes it.

    ``open_store`` recovers the streams, which may take long. Its first argument returns whether the server is closing;
    ``open_store`` then raises AeronSparkError soon, because ``close`` waits for it. It calls the second one with the
    numbers of recovered streams and of all streams. ``report`` takes the errors of the housekeeping.
    """

    def __init__(
        self, open_store: Callable[[Callable[[], bool], Callable[[int, int], object]], StreamStore],
        report: Callable[[ConnectionRunner | None, BaseException], None],
    ) -> None:  # fmt: skip
        self._open_store = open_store
        self._report = report
        self._lock = threading.Lock()
        self._store: StreamStore | None = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self.progress: tuple[int, int] | None = None
        """The numbers of recovered streams and of all streams, since the recovery has begun."""
        self.turns = 0
        """How often the housekeeping was done."""

    @property
    def is_open(self) -> bool:
        """Whether the store is open, so that the housekeeping runs."""
        return self._store is not None

    @property
    def opened(self) -> StreamStore | None:
        """The store, if it is open. Does not wait."""
        return self._store

    @property
    def problem(self) -> str:
        """A text of the streams that are not recovered yet, or ""; the damaged ones are no problem here."""
        store = self._store
        if store is None:
            if self.progress is None:
                return "the streams are not recovered yet"
            return "{} of {} streams are recovered".format(*self.progress)
        unrecovered = store.unrecovered
        if not unrecovered:
            return ""
        name, error = next(iter(unrecovered.items()))
        return f"{len(unrecovered)} streams are not recovered yet, such as {name!r}: {error}"

    @property
    def store_problem(self) -> str:
        """Why the open store cannot take streams and rows, or which streams it lacks, or ""."""
        store = self._store
        return "" if store is None else store.problem

    @property
    def store(self) -> StreamStore:
        """The store, opened at the first use. Raises the error of opening it, and EndedError after ``close``."""
        with self._lock:
            if self._ending.is_set():
                raise EndedError("the server is closed", remedy="Start it again.")
            if self._store is None:
                self._store = self._open_store(self._ending.is_set, self._note_progress)
                self._thread = threading.Thread(target=self._run_ticks, name="aeron-spark-streams", daemon=True)
                self._thread.start()
            return self._store

    def recover(self) -> None:
        """Open the store on a background thread, and wait for it. Raises the error of opening it.

        An exception of a signal handler ends the wait; then the recovery ends after its present stream, with ``close``.
        """
        opened: Future[StreamStore] = Future()

        def open_store() -> None:
            try:
                opened.set_result(self.store)
            except BaseException as error:
                opened.set_exception(error)

        threading.Thread(target=open_store, name="aeron-spark-recovery", daemon=True).start()
        result_within(opened, None, "the recovery of the streams")

    def close(self) -> None:
        """Close the store. Committed and staged rows stay on the disk."""
        self._ending.set()
        with self._lock:
            store, self._store, thread = self._store, None, self._thread
        if thread is not None:
            thread.join()
        if store is not None:
            store.close()

    def _note_progress(self, done: int, total: int) -> None:
        self.progress = (done, total)

    def _run_ticks(self) -> None:
        reported: set[str] = set()  # errors of the previous tick, which are not reported again
        while not self._ending.wait(HOUSEKEEPING_INTERVAL_S):
            errors = {str(error): error for error in self._tick()}
            self.turns += 1
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

"""Watches what a server needs: disk space, memory, new errors of the driver, and the upkeep of its store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from aeron_spark.endpoint.connection import ConnectionCore
from aeron_spark.endpoint.endpoint_listeners import stack_of
from aeron_spark.errors import REFUSALS, AeronSparkError, EndedError, RefusedError
from aeron_spark.node.paths import Space, reserve_of, space_of
from aeron_spark.node.settings import MIB
from aeron_spark.protocol import handshake_packets
from aeron_spark.server.event_log import EventLog
from aeron_spark.streams.store import StreamStore
from aeron_spark.waiting import result_within

OPTION: Final = "diskReserve"


class DiskReserve:
    """Measures the file systems of a server's folders. Thread-safe.

    ``folders`` returns the folders by name of their volume, such as "store". ``reserve`` returns the bytes that must be
    free on each; 0 means no reserve. A measurement is one system call for each folder.
    """

    def __init__(
        self,
        folders: Callable[[], Mapping[str, Path]],
        reserve: Callable[[], int],
        measure: Callable[[Path], Space] = space_of,
    ) -> None:
        self._reserve: Final = reserve
        self._folders: Final = folders
        self._measure: Final = measure

    @property
    def reserve_bytes(self) -> int:
        """The bytes that must be free on each volume."""
        return self._reserve()

    def volumes(self) -> dict[str, Space]:
        """Return the free and total bytes of each volume, by name."""
        return {name: self._measure(folder) for name, folder in self._folders().items()}

    def problem(self) -> str:
        """Return a text of the volume that has too few free bytes, or ""."""
        for space in self.volumes().values():
            if space.free < self.reserve_bytes:
                return (
                    f"{space.path} has {space.free / MIB:.0f} MiB free, less than the reserve of "
                    f"{self.reserve_bytes / MIB:.0f} MiB ({OPTION})"
                )
        return ""

    def refusal(self) -> RefusedError | None:
        """Return why nothing may be written now, or None. Reading, purging and deleting continue."""
        problem = self.problem()
        return None if not problem else RefusedError(problem, remedy=REFUSALS["disk-full"].remedy, reason="disk-full")


HOUSEKEEPING_INTERVAL_S: Final = 1.0  # between two calls of ``StreamStore.tick``: retention, leases, abandoned stages


class StoreHousekeeper:
    """Opens the store at its first use, calls its ``tick`` on a thread, and closes it.

    ``open_store`` recovers the streams, which may take long. Its first argument returns whether the server is closing;
    ``open_store`` then raises AeronSparkError soon, because ``close`` waits for it. It calls the second one with the
    numbers of recovered streams and of all streams. ``report`` takes the errors of the housekeeping.
    """

    def __init__(
        self,
        open_store: Callable[[Callable[[], bool], Callable[[int, int], object]], StreamStore],
        report: Callable[[ConnectionCore | None, BaseException], None],
    ) -> None:
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


WATCH_INTERVAL_S: Final = 1.0  # a disk fills, and memory grows, within seconds
MEMORY_HIGH_SHARE: Final = 0.8  # of the memory limit
# A server answers a handshake with an error. The client's media driver logs it, and each has another text.
HINT: Final = f"errorMessage={handshake_packets.HINT_PREFIX}"
MAX_KNOWN_ERRORS: Final = 10_000  # distinct errors of the media driver, by a hash of their texts


class DriverError(Protocol):
    """A distinct error of a media driver."""

    @property
    def observations(self) -> int:
        """How often it has happened."""

    @property
    def text(self) -> str:
        """Its text with the stack of Java."""


class LowStates:
    """Reports a state when it begins; again only after it has ended."""

    def __init__(self, events: EventLog) -> None:
        self._events: Final = events
        self._active: Final[set[tuple[str, str]]] = set()

    def update(self, event: str, subject: str, is_low: bool, /, **fields: Any) -> None:
        """Report ``event`` about ``subject`` if it is low now and was not at the last update."""
        if not is_low:
            self._active.discard((event, subject))
        elif (event, subject) not in self._active:
            self._active.add((event, subject))
            self._events.report(event, **fields)


class EventWatch:
    """Watches the volumes, the memory of clients and the media driver on a thread; also reports suppressed lines."""

    def __init__(
        self,
        events: EventLog,
        volumes: Callable[[], Mapping[str, Space]],
        reserve_bytes: Callable[[], int],
        shared_memory: Callable[[], Space],
        memory: Callable[[], tuple[int, int]],
        driver_errors: Callable[[], Iterable[DriverError]],
        check_backups: Callable[[], object],
    ) -> None:
        """``memory`` returns the bytes that clients make the server hold, and their limit; 0: no limit.

        ``check_backups`` reports a backup whose command sends no requests any more.
        """
        self._events: Final = events
        self._volumes: Final = volumes
        self._reserve_bytes: Final = reserve_bytes
        self._shared_memory: Final = shared_memory
        self._memory: Final = memory
        self._driver_errors: Final = driver_errors
        self._check_backups: Final = check_backups
        self._low: Final = LowStates(events)
        self._known_errors: set[int] | None = None  # None: the errors from before the start are not read yet
        self._ending: Final = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to watch."""
        self._thread = threading.Thread(target=self._run, name="aeron-spark-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop to watch."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def check(self) -> None:
        """Look once."""
        self._events.report_suppressed_when_due()
        for look in (
            self._look_at_volumes, self._look_at_shared_memory, self._look_at_memory, self._look_at_driver,
            self._check_backups,
        ):  # fmt: skip
            try:
                with suppress(AeronSparkError, OSError):  # a folder or the media driver is missing for a while
                    look()
            except Exception as error:  # the thread must survive, such as a damaged file of a dead media driver
                self._events.report("error", error_type=type(error).__name__, error=str(error), stack=stack_of(error))

    def _run(self) -> None:
        while not self._ending.wait(WATCH_INTERVAL_S):
            self.check()

    def _look_at_volumes(self) -> None:
        reserve = self._reserve_bytes()
        for name, space in self._volumes().items():
            self._low.update(
                "disk_low", name, space.free < reserve, volume=name, free_bytes=space.free, reserve_bytes=reserve
            )

    def _look_at_shared_memory(self) -> None:
        space = self._shared_memory()
        reserve = reserve_of(space)
        self._low.update("shm_low", "", space.free < reserve, free_bytes=space.free, reserve_bytes=reserve)

    def _look_at_memory(self) -> None:
        used, limit = self._memory()
        is_high = limit > 0 and used >= limit * MEMORY_HIGH_SHARE
        self._low.update("memory_high", "", is_high, used_bytes=used, limit_bytes=limit)

    def _look_at_driver(self) -> None:
        errors = {hash(one.text): one for one in self._driver_errors() if HINT not in one.text}
        if self._known_errors is None:
            self._known_errors = set(errors)
            return
        for number, error in errors.items():
            if number not in self._known_errors and len(self._known_errors) < MAX_KNOWN_ERRORS:
                self._known_errors.add(number)
                first_line = next((line for line in error.text.splitlines() if line.strip()), "")
                self._events.report("driver_error", error=first_line, count=error.observations)

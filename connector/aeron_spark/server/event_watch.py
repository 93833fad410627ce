"""Looks each second for states that no part of the server notices by itself, and reports them as events, once each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from aeron_spark.connection.endpoint_listeners import stack_of
from aeron_spark.errors import AeronSparkError
from aeron_spark.node.space import Space, reserve_of
from aeron_spark.protocol import retry_cookies
from aeron_spark.server.event_log import EventLog

WATCH_INTERVAL_S: Final = 1.0  # a disk fills, and memory grows, within seconds
MEMORY_HIGH_SHARE: Final = 0.8  # of the memory limit
# A server answers a handshake with an error. The client's media driver logs it, and each has another text.
HINT: Final = f"errorMessage={retry_cookies.PREFIX}"
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
        self, events: EventLog, volumes: Callable[[], Mapping[str, Space]], reserve_bytes: Callable[[], int],
        shared_memory: Callable[[], Space], memory: Callable[[], tuple[int, int]],
        driver_errors: Callable[[], Iterable[DriverError]], check_backups: Callable[[], object],
    ) -> None:  # fmt: skip
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

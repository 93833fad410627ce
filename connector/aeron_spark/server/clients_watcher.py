"""Applies changes of a server's clients file, and the expiry of keys, to the clients that are connected."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from aeron_spark.connection.runner import ConnectionRunner
from aeron_spark.errors import AeronSparkError
from aeron_spark.keys.client_table import ClientsChange, ClientTable
from aeron_spark.server.event_log import RELOAD_FAILED, EventLog
from aeron_spark.server.event_table import Level

CLIENTS: Final = "clients"  # the clients file in events
CHECK_INTERVAL_S: Final = 1.0  # a file on a network, or one that Kubernetes replaces, gives no notification


class ClientsWatcher:
    """Checks a clients file each second on a thread. Without a file (``table`` None), only keys can expire.

    ``apply`` applies the present grants to all connections. ``report`` takes the errors of the thread.
    """

    def __init__(
        self, table: ClientTable | None, apply: Callable[[], None],
        report: Callable[[ConnectionRunner | None, BaseException], None], events: EventLog,
    ) -> None:  # fmt: skip
        self._table = table
        self._apply = apply
        self._report = report
        self._events = events
        self._checking = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to check."""
        self._thread = threading.Thread(target=self._run, name="aeron-spark-clients", daemon=True)
        self._thread.start()

    def reload(self) -> ClientsChange | None:
        """Read the file now, and apply it; return the changes, or None without a file.

        Raises SetupError or DataFormatError if the file is missing or wrong; then the last good version stays.
        """
        with self._checking:
            change = None if self._table is None else self._table.refresh(force=True)
            if change is not None and (change.added or change.removed or change.changed):
                self._report_change(change)
            self._apply()
            return change

    def close(self) -> None:
        """Stop to check."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(CHECK_INTERVAL_S):
            try:
                self._check()
            except Exception as error:  # the thread must survive: it also ends the connections of expired keys
                self._report(None, error)

    def _check(self) -> None:
        with self._checking:
            try:
                change = None if self._table is None else self._table.refresh()
                if change is not None:
                    self._report_change(change)
            except AeronSparkError as error:
                self._events.report(
                    "reload_failed", files=(CLIENTS,), error=error.what, remedy=error.remedy or None
                )  # fmt: skip
                reported = error.with_what(f"{error.what}; the last good version of the file stays in use")
                reported.reason = RELOAD_FAILED
                self._report(None, reported)
            self._apply()  # keys also expire

    def _report_change(self, change: ClientsChange) -> None:
        self._events.report(
            "clients_changed", level=None if change.keys else Level.WARNING, added=change.added,
            removed=change.removed, changed=change.changed, narrowed=change.narrowed, keys=change.keys,
        )  # fmt: skip

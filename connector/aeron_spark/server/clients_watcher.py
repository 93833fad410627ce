"""Applies changes of a server's clients file, and the expiry of keys, to the clients that are connected."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from aeron_spark.connection.connection import Connection
from aeron_spark.errors import AeronSparkError
from aeron_spark.keys.client_table import ClientsChange, ClientTable

CHECK_INTERVAL_S: Final = 1.0  # a file on a network, or one that Kubernetes replaces, gives no notification


class ClientsWatcher:
    """Checks a clients file each second on a thread. Without a file (``table`` None), only keys can expire.

    ``apply`` applies the present grants to all connections. ``report`` takes the errors of the thread.
    """

    def __init__(
        self, table: ClientTable | None, apply: Callable[[], None],
        report: Callable[[Connection | None, BaseException], None],
    ) -> None:  # fmt: skip
        self._table = table
        self._apply = apply
        self._report = report
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
                if self._table is not None:
                    self._table.refresh()
            except AeronSparkError as error:
                self._report(None, error.with_what(f"{error.what}; the last good version of the file stays in use"))
            self._apply()  # keys also expire

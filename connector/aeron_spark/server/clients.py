"""The clients that a server admits: the stores of keys, the decisions, and the file of clients while it changes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from aeron_spark import node
from aeron_spark.endpoint.connection import ConnectionCore
from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError, SetupError
from aeron_spark.keys.clients_file import ClientsChange, ClientTable
from aeron_spark.keys.stores import FilePeerStore, KeyPaths, load_identity
from aeron_spark.options import ServerOptions
from aeron_spark.server.event_log import RELOAD_FAILED, EventLog
from aeron_spark.server.event_table import Level


def peer_store_of(options: ServerOptions) -> FilePeerStore:
    """Return the keys of a server. Raises OptionError for a missing or wrong clients file, SetupError for its key."""
    paths = key_paths_of(options)
    identity = load_identity(options.identity) if is_from_environment(options) and options.identity else None
    return FilePeerStore(paths, identity, clients_of(options, paths.authorized_keys))


def key_paths_of(options: ServerOptions) -> KeyPaths:
    """Return the paths of a server's key files."""
    defaults = KeyPaths.below(node.config_home(os.environ))
    paths = replace(defaults, identity=defaults.server_identity)
    if options.identity is not None and not is_from_environment(options):
        paths = replace(paths, identity=Path(options.identity))
    if options.authorized_keys is not None:
        paths = replace(paths, authorized_keys=Path(options.authorized_keys))
    return paths


def is_from_environment(options: ServerOptions) -> bool:
    """Whether the server's key is in an environment variable."""
    return options.identity is not None and options.identity.startswith("env:")


def clients_of(options: ServerOptions, path: Path) -> ClientTable | None:
    """Return the grants of the clients file; None if every key has every grant.

    Raises OptionError for a missing or wrong file.
    """
    if options.allow_any_key:
        if options.authorized_keys is not None or path.exists():
            raise OptionError(
                f"option 'allowAnyKey' contradicts the clients file {path}",
                remedy="Leave the option out, or remove the file.",
            )
        return None
    if options.authorized_keys is None and not path.exists():
        raise OptionError(
            f"no authorised keys: {path} does not exist",
            remedy="Create it, or pass --allow-any-key (allow_any_key=True), which gives every key every grant.",
        )
    try:
        return ClientTable(path)
    except (SetupError, DataFormatError) as error:
        raise OptionError(f"option 'authorizedKeys': {error.what}", remedy=error.remedy) from None


CLIENTS: Final = "clients"  # the clients file in events
CHECK_INTERVAL_S: Final = 1.0  # a file on a network, or one that Kubernetes replaces, gives no notification


class ClientsWatcher:
    """Checks a clients file each second on a thread. Without a file (``table`` None), only keys can expire.

    ``apply`` applies the present grants to all connections. ``report`` takes the errors of the thread.
    """

    def __init__(
        self,
        table: ClientTable | None,
        apply: Callable[[], None],
        report: Callable[[ConnectionCore | None, BaseException], None],
        events: EventLog,
    ) -> None:
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
                self._events.report("reload_failed", files=(CLIENTS,), error=error.what, remedy=error.remedy or None)
                reported = error.with_what(f"{error.what}; the last good version of the file stays in use")
                reported.reason = RELOAD_FAILED
                self._report(None, reported)
            self._apply()  # keys also expire

    def _report_change(self, change: ClientsChange) -> None:
        self._events.report(
            "clients_changed",
            level=None if change.keys else Level.WARNING,
            added=change.added,
            removed=change.removed,
            changed=change.changed,
            narrowed=change.narrowed,
            keys=change.keys,
        )

"""Reloads the configuration and the clients file of a running server, completely or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from aeron_spark.errors import AeronSparkError
from aeron_spark.keys.client_table import ClientsChange
from aeron_spark.keys.key_files import read_shared_secret
from aeron_spark.options import LiveOptions, OptionChanges, ServerOptions
from aeron_spark.server.clients_watcher import CLIENTS
from aeron_spark.server.event_log import EventLog

NO_CHANGES: Final = OptionChanges()
CONFIGURATION: Final = "configuration"


class ReloadableServer(Protocol):
    """A server whose files and options can be reloaded."""

    @property
    def options(self) -> LiveOptions:
        """The options that apply now."""

    @property
    def events(self) -> EventLog:
        """The events of the server."""

    def reload(self) -> ClientsChange | None:
        """Reload the clients file; return the changes, or None without a file. Raises for a wrong file."""


class Reloader:
    """Reloads a server. Thread-safe: one reload at a time.

    ``read_options`` returns the options of its configuration now, or raises OptionError; without it, only the clients
    file is reloaded.
    """

    def __init__(self, server: ReloadableServer, read_options: Callable[[], ServerOptions] | None = None) -> None:
        self._server: Final = server
        self._read_options: Final = read_options
        self._reloading: Final = threading.Lock()

    def run(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Reload, report the event, and return what changed; a command of the admin socket, without arguments.

        Raises OptionError, SetupError or DataFormatError for a wrong file. Then nothing changes.
        """
        options = self._server.options
        unused: tuple[str, ...] = (CONFIGURATION,)  # the files whose new version is not used if the next step fails
        try:
            with self._reloading:
                configured = None if self._read_options is None else self._read_options()
                # before the clients file applies: all or nothing
                preview = NO_CHANGES
                if configured is not None:
                    preview = options.compare(configured)
                    read_shared_secret(options.value.shared_secret_file)  # without it, the next start would fail
                unused = (CONFIGURATION, CLIENTS) if preview.changed else (CLIENTS,)
                clients = self._server.reload()
                changes = NO_CHANGES if configured is None else options.replace(configured)
        except AeronSparkError as error:
            self._server.events.report("reload_failed", files=unused, error=error.what, remedy=error.remedy)
            raise
        names = {} if clients is None else {
            "added": clients.added, "removed": clients.removed, "changed": clients.changed,
            "narrowed": clients.narrowed,
        }  # fmt: skip
        client_changes = tuple(f"clients {what}: {', '.join(keys)}" for what, keys in names.items() if keys)
        self._server.events.report(
            "reloaded", changed=(*changes.changed, *client_changes), restart_needed=changes.restart_needed
        )
        return {
            "changed": list(changes.changed),
            "restart_needed": list(changes.restart_needed),
            "clients": {what: list(keys) for what, keys in names.items()},
        }

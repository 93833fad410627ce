"""The server that ``aeron-spark server`` runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from aeron_spark.errors import AeronSparkError
from aeron_spark.options import ServerOptions
from aeron_spark.server.relay import Relay
from aeron_spark.server.server import Server
from aeron_spark.server.state import ServiceManager


class CommandServer(Server):
    """A server that relays messages, reloads its configuration, and reports to the service manager.

    ``read_options`` returns the options of its command line and its ``configuration`` file now, or raises OptionError.
    """

    def __init__(
        self,
        address: str,
        options: Mapping[str, Any],
        configuration: Path | None,
        read_options: Callable[[], ServerOptions],
    ) -> None:
        super().__init__(address, **options)
        Relay(self._endpoint)
        self._read_options = read_options
        self._backups.config_file = "" if configuration is None else str(configuration)
        self.service_manager: Final = ServiceManager(self._state)
        """Reports the state of the server, between its ``start`` and its ``close``."""

    @property
    def unfinished_work(self) -> int:
        """The number of commits that run, and of calls that were received before ``drain`` and have not ended."""
        return self._unfinished_work

    @property
    def is_node_started_here(self) -> bool:
        """Whether this server has started its media driver."""
        return self._node.is_started_here

    def report_ready_once(self) -> None:
        """Report the event ``ready`` if the server is ready for the first time."""
        self._state.report_ready_once()

    def try_reload(self) -> None:
        """Reload the configuration and the clients file. An error is only reported, as an event."""
        with suppress(AeronSparkError):
            self._reload_files({})

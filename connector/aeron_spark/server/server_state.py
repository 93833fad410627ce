"""The state of a server: whether it starts, is ready or drains, and the facts that ``server status`` shows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from aeron_spark.protocol.keypair import fingerprint
from aeron_spark.server.disk_reserve import DiskReserve
from aeron_spark.server.message_server import MessageServer
from aeron_spark.server.readiness import Readiness
from aeron_spark.server.store_housekeeper import StoreHousekeeper
from aeron_spark.version import package_version


class ServerState:
    """Derives the state of a server from its parts. Thread-safe; ``aeron_dir`` returns the media driver's directory.

    The server sets ``is_recovered`` when all its streams are recovered or damaged, and ``is_draining``.
    """

    def __init__(
        self, server: MessageServer, housekeeper: StoreHousekeeper, disk_reserve: DiskReserve,
        aeron_dir: Callable[[], str],
    ) -> None:  # fmt: skip
        self.is_recovered = False
        self.is_draining = False
        self.restart_needed: tuple[str, ...] = ()
        """The options that were changed and need a restart."""
        self.readiness: Final = Readiness(
            {
                "listening": self._listening_problem,
                "streams": self._streams_problem,
                "node": self._node_problem,
                "disk": disk_reserve.problem,
                "draining": lambda: "the server is about to end" if self.is_draining else "",
            }
        )
        self._server: Final = server
        self._housekeeper: Final = housekeeper
        self._aeron_dir: Final = aeron_dir
        self._started: Final = time.time()
        self._started_at: Final = time.monotonic()
        self._is_ready_reported = False

    def report_ready_once(self) -> None:
        """Report the event ``ready`` if the server is ready for the first time."""
        if self._is_ready_reported or not self.readiness.is_ready:
            return
        self._is_ready_reported = True
        store = self._housekeeper.store if self._housekeeper.is_open else None
        self._server.events.report(
            "ready", seconds=time.monotonic() - self._started_at, streams=0 if store is None else len(store.names),
            damaged=0 if store is None else len(store.failed),
        )  # fmt: skip

    def status(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state of the server; a command of the admin socket, without arguments."""
        reasons = self.readiness.reasons
        return {
            "pid": os.getpid(),
            "version": package_version(),
            "started": self._started,
            "ready": not reasons,
            "reasons": reasons,
            "addresses": list(self._server.address_texts),
            "key": fingerprint(self._server.public_key),
            "aeron_dir": self._aeron_dir(),
            "connections": len(self._server.connections),
            "restart_needed": list(self.restart_needed),
        }

    @property
    def turns(self) -> tuple[int, ...]:
        """How often the event loop and, once the store is open, its housekeeping turned. Each grows while it works."""
        housekeeping = (self._housekeeper.turns,) if self._housekeeper.is_open else ()
        return (self._server.runtime.loop.turns, *housekeeping)

    @property
    def recovery_progress(self) -> tuple[int, int] | None:
        """The numbers of recovered streams and of all streams; None before the recovery."""
        return self._housekeeper.progress

    def _listening_problem(self) -> str:
        return "" if self._server.addresses else "the server does not listen"

    def _streams_problem(self) -> str:
        if self.is_recovered and not self._housekeeper.is_open:
            return ""  # without streams, the store opens at its first use
        return self._housekeeper.problem

    def _node_problem(self) -> str:
        if not self.is_recovered:
            return "the server is starting"
        return "" if self._server.has_driver else "the media driver was lost; the server connects to the next one"

"""The state of a server: whether it starts, is ready or drains, and the facts that ``server status`` shows."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from aeron_spark.keys.client_table import ClientTable
from aeron_spark.options import LiveOptions
from aeron_spark.protocol.keypair import fingerprint
from aeron_spark.server.backups import Backups
from aeron_spark.server.disk_reserve import DiskReserve
from aeron_spark.server.memory_formula import Load, node_terms, server_terms, shared_memory_terms, total
from aeron_spark.server.message_server import MessageServer
from aeron_spark.server.readiness import Readiness
from aeron_spark.server.store_housekeeper import StoreHousekeeper
from aeron_spark.streams.definition import DEFAULT_SEGMENT_BYTES
from aeron_spark.streams.store import StreamStore
from aeron_spark.version import package_version


class ServerState:
    """Derives the state of a server from its parts. Thread-safe; ``aeron_dir`` returns
    the media driver's directory, ``storage_problem`` why the node cannot store streams, or "". ``clients`` is None
    without a clients file.

    The server sets ``is_recovered`` when all its streams are recovered or damaged, and ``is_draining``.
    """

    def __init__(
        self, server: MessageServer, housekeeper: StoreHousekeeper, disk_reserve: DiskReserve,
        options: LiveOptions, aeron_dir: Callable[[], str], clients: ClientTable | None,
        backups: Backups, storage_problem: Callable[[], str],
    ) -> None:  # fmt: skip
        self.is_recovered = False
        self.is_draining = False
        self.readiness: Final = Readiness(
            {
                "listening": self._listening_problem,
                "streams": self._streams_problem,
                "store": self._store_problem,
                "node": self._node_problem,
                "disk": disk_reserve.problem,
                "draining": lambda: "the server is about to end" if self.is_draining else "",
            }
        )
        self._server: Final = server
        self._housekeeper: Final = housekeeper
        self._disk_reserve: Final = disk_reserve
        self._options: Final = options
        self._aeron_dir: Final = aeron_dir
        self._clients: Final = clients
        self._backups: Final = backups
        self._storage_problem: Final = storage_problem
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
        reasons, last_backup = self.readiness.reasons, self._backups.last
        return {
            "pid": os.getpid(),
            "version": package_version(),
            "started": self._started,
            "ready": not reasons,
            "reasons": reasons,
            "addresses": list(self._server.address_texts),
            "key": fingerprint(self._server.public_key),
            "aeron_dir": self._aeron_dir(),
            "clients_file": None if self._clients is None else str(self._clients.path),
            "clients_read_at": None if self._clients is None else self._clients.read_at,
            "last_backup": None if last_backup is None else last_backup.time,
            "last_backup_directory": None if last_backup is None else last_backup.directory,
            "restart_needed": list(self._options.restart_needed),
            "limits": self.limits(),
            "streams": self._streams_by_state(),
            "memory": self._memory(),
            "disk": {
                name: {"free_bytes": space.free, "total_bytes": space.total}
                for name, space in self._disk_reserve.volumes().items()
            },
        }

    def limits(self) -> dict[str, dict[str, int]]:
        """Return the use and the limit of each limited resource, by option; a limit of 0 is none."""
        used, options = self._server.statistics, self._options.value
        store = self._store
        counts = {
            "maxConnections": (used["connections"], options.max_connections),
            "maxSessions": (used["sessions"], options.max_sessions),
            "maxPending": (used["pending"], options.max_pending),
            "stageBytes": (0 if store is None else store.staged_bytes, options.stage_bytes),
            "maxPartitions": (self._partitions(), options.max_partitions),
        }
        return {name: {"used": count, "limit": limit} for name, (count, limit) in counts.items()}

    def _streams_by_state(self) -> dict[str, int]:
        store = self._store
        states = [] if store is None else [store.condition(name).state for name in store.names]
        return dict(Counter(states))

    def _memory(self) -> dict[str, Any]:
        """Return the formulas of the memory that the present load may need, each with its sum and terms in bytes."""
        options, partitions = self._options.value, self._partitions()
        load = Load(
            connections=len(self._server.connections), bulk_links=self._server.statistics["bulk_links"],
            partitions=partitions, written_partitions=partitions, memory_limit=options.memory_limit,
            link_term_bytes=options.term_length, stream_term_bytes=DEFAULT_SEGMENT_BYTES,
        )  # fmt: skip
        formulas = {"server": server_terms(load), "node": node_terms(load), "shared_memory": shared_memory_terms(load)}
        return {
            name: {"bytes": total(terms), "terms": {one.name: one.bytes for one in terms}}
            for name, terms in formulas.items()
        }

    @property
    def _store(self) -> StreamStore | None:
        return self._housekeeper.store if self._housekeeper.is_open else None

    def _partitions(self) -> int:
        store = self._store
        return 0 if store is None else sum(one.definition.partitions for one in store.all())

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

    def _store_problem(self) -> str:
        return self._storage_problem() or self._housekeeper.store_problem

    def _node_problem(self) -> str:
        if not self.is_recovered:
            return "the server is starting"
        return "" if self._server.has_driver else "the media driver was lost; the server connects to the next one"

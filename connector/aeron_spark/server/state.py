"""The state of a server: its file, whether it is ready, and what a service manager is told."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from aeron_spark.endpoint.server_endpoint import ServerEndpoint
from aeron_spark.keys.clients_file import ClientTable
from aeron_spark.protocol.keypair import fingerprint
from aeron_spark.server.backups import Backups
from aeron_spark.server.event_log import EventLog
from aeron_spark.server.preflight import Load, node_terms, server_terms, shared_memory_terms, total
from aeron_spark.server.server_node import ServerNode
from aeron_spark.server.watch import DiskReserve, StoreHousekeeper
from aeron_spark.streams.definition import DEFAULT_SEGMENT_BYTES
from aeron_spark.streams.store import StreamStore
from aeron_spark.version import package_version


class Readiness:
    """A server is ready while none of its conditions has a problem. Thread-safe if the conditions are.

    Each condition returns its problem as a text, or "" if it is fulfilled. The texts are always those of this moment.
    """

    def __init__(self, conditions: Mapping[str, Callable[[], str]]) -> None:
        self._conditions: Final = conditions

    @property
    def reasons(self) -> dict[str, str]:
        """The problems of the conditions that are not fulfilled, by name; empty if the server is ready."""
        problems = {name: problem() for name, problem in self._conditions.items()}
        return {name: problem for name, problem in problems.items() if problem}

    @property
    def is_ready(self) -> bool:
        """Whether all conditions are fulfilled."""
        return not self.reasons


class ServerState:
    """Derives the state of a server from its parts. Thread-safe. ``clients`` is None without a clients file.

    The server sets ``is_recovered`` when all its streams are recovered or damaged, and ``is_draining``.
    """

    def __init__(
        self,
        endpoint: ServerEndpoint,
        events: EventLog,
        housekeeper: StoreHousekeeper,
        disk_reserve: DiskReserve,
        node: ServerNode,
        clients: ClientTable | None,
        backups: Backups,
    ) -> None:
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
        self.endpoint: Final = endpoint
        self.events: Final = events
        self.housekeeper: Final = housekeeper
        self.disk_reserve: Final = disk_reserve
        self.node: Final = node
        self.clients: Final = clients
        self.backups: Final = backups
        self._started: Final = time.time()
        self._started_at: Final = time.monotonic()
        self._is_ready_reported = False

    def report_ready_once(self) -> None:
        """Report the event ``ready`` if the server is ready for the first time."""
        if self._is_ready_reported or not self.readiness.is_ready:
            return
        self._is_ready_reported = True
        store = self.store
        self.events.report(
            "ready",
            seconds=time.monotonic() - self._started_at,
            streams=0 if store is None else len(store.names),
            damaged=0 if store is None else len(store.failed),
        )

    def status(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state of the server; a command of the admin socket, without arguments."""
        reasons, last_backup = self.readiness.reasons, self.backups.last
        return {
            "pid": os.getpid(),
            "version": package_version(),
            "started": self._started,
            "ready": not reasons,
            "reasons": reasons,
            "addresses": list(self.endpoint.address_texts),
            "key": fingerprint(self.endpoint.public_key),
            "aeron_dir": self.node.aeron_dir,
            "clients_file": None if self.clients is None else str(self.clients.path),
            "clients_read_at": None if self.clients is None else self.clients.read_at,
            "last_backup": None if last_backup is None else last_backup.time,
            "last_backup_directory": None if last_backup is None else last_backup.directory,
            "restart_needed": list(self.endpoint.live.restart_needed),
            "limits": self.limits(),
            "streams": self._streams_by_state(),
            "memory": self._memory(),
            "disk": {
                name: {"free_bytes": space.free, "total_bytes": space.total}
                for name, space in self.disk_reserve.volumes().items()
            },
        }

    def limits(self) -> dict[str, dict[str, int]]:
        """Return the use and the limit of each limited resource, by option; a limit of 0 is none."""
        used, options = self.endpoint.statistics, self.endpoint.live.value
        store = self.store
        counts = {
            "maxConnections": (used["connections"], options.max_connections),
            "maxSessions": (used["sessions"], options.max_sessions),
            "maxPending": (used["pending"], options.max_pending),
            "stageBytes": (0 if store is None else store.staged_bytes, options.stage_bytes),
            "maxPartitions": (self._partitions(), options.max_partitions),
        }
        return {name: {"used": count, "limit": limit} for name, (count, limit) in counts.items()}

    def _streams_by_state(self) -> dict[str, int]:
        store = self.store
        states = [] if store is None else [store.condition(name).state for name in store.names]
        return dict(Counter(states))

    def _memory(self) -> dict[str, Any]:
        """Return the formulas of the memory that the present load may need, each with its sum and terms in bytes."""
        options, partitions = self.endpoint.live.value, self._partitions()
        load = Load(
            connections=len(self.endpoint.connected),
            bulk_links=self.endpoint.statistics["bulk_links"],
            partitions=partitions,
            written_partitions=partitions,
            memory_limit=options.memory_limit,
            link_term_bytes=options.term_length,
            stream_term_bytes=DEFAULT_SEGMENT_BYTES,
        )
        formulas = {"server": server_terms(load), "node": node_terms(load), "shared_memory": shared_memory_terms(load)}
        return {
            name: {"bytes": total(terms), "terms": {one.name: one.bytes for one in terms}}
            for name, terms in formulas.items()
        }

    @property
    def store(self) -> StreamStore | None:
        """The open store of streams; None before it is open."""
        return self.housekeeper.store if self.housekeeper.is_open else None

    def _partitions(self) -> int:
        store = self.store
        return 0 if store is None else sum(one.definition.partitions for one in store.all())

    @property
    def turns(self) -> tuple[int, ...]:
        """How often the event loop and, once the store is open, its housekeeping turned. Each grows while it works."""
        housekeeping = (self.housekeeper.turns,) if self.housekeeper.is_open else ()
        return (self.endpoint.loop.turns, *housekeeping)

    @property
    def recovery_progress(self) -> tuple[int, int] | None:
        """The numbers of recovered streams and of all streams; None before the recovery."""
        return self.housekeeper.progress

    def _listening_problem(self) -> str:
        return "" if self.endpoint.addresses else "the server does not listen"

    def _streams_problem(self) -> str:
        if self.is_recovered and not self.housekeeper.is_open:
            return ""  # without streams, the store opens at its first use
        return self.housekeeper.problem

    def _store_problem(self) -> str:
        return self.node.storage_problem() or self.housekeeper.store_problem

    def _node_problem(self) -> str:
        if not self.is_recovered:
            return "the server is starting"
        return "" if self.endpoint.has_driver else "the media driver was lost; the server connects to the next one"


STEP_INTERVAL_S: Final = 0.25  # a manager notices a step of the recovery so late
SEND_TIMEOUT_S: Final = 1.0  # the manager's socket is local: its buffer has room, or the manager hangs
RECOVERY_EXTENSION_S: Final = 60  # for the recovery of the next stream
# With a full disk a server serves reads and purges. A service manager that waits for the disk would end it.
NOT_NEEDED_TO_START: Final = frozenset({"disk", "store"})
WATCHDOG_SHARE: Final = 3  # of the watchdog's time passes between two reports


class ServiceReports:
    """Decides what to report, from the state of a server and the time in seconds. Has no thread and no socket.

    READY=1 means that the server serves: it does not wait for a disk with too little free space, or for streams whose
    folder is gone, which STATUS names. A recovery that makes progress extends the time that the service manager allows
    for the start. The watchdog is satisfied only if each thread of ``turns`` has turned since it was satisfied last.
    """

    def __init__(self, server: ServerState, watchdog_s: float | None) -> None:
        self._server: Final = server
        self._watchdog_s: Final = watchdog_s
        self._progress: tuple[int, int] | None = None
        self._was_ready = False
        self._status = ""
        self._turns: tuple[int, ...] = ()
        self._next_watchdog = 0.0

    def step(self, now: float) -> list[str]:
        """Return the lines to report now."""
        progress, reasons = self._server.recovery_progress, self._server.readiness.reasons
        lines = []
        if not self._was_ready and progress != self._progress and progress is not None:
            lines.append(f"EXTEND_TIMEOUT_USEC={RECOVERY_EXTENSION_S * 1_000_000}")
        self._progress = progress
        if not self._was_ready and reasons.keys() <= NOT_NEEDED_TO_START:
            self._was_ready, self._turns, self._next_watchdog = True, self._server.turns, now
            lines.append("READY=1")
        status = "ready" if not reasons else "not ready: " + "; ".join(reasons.values())
        if not self._was_ready:
            status = "starting" if progress is None else "recovering {} of {} streams".format(*progress)
        if status != self._status:
            self._status = status
            lines.append(f"STATUS={status.replace(chr(10), ' ')}")
        return lines + self._watchdog(now)

    def _watchdog(self, now: float) -> list[str]:
        if self._watchdog_s is None or not self._was_ready or now < self._next_watchdog:
            return []
        turns = self._server.turns
        if len(turns) == len(self._turns) and any(new <= old for new, old in zip(turns, self._turns, strict=True)):
            return []  # a thread is stuck, or has not turned yet
        self._turns, self._next_watchdog = turns, now + self._watchdog_s / WATCHDOG_SHARE
        return ["WATCHDOG=1"]


class ServiceManager:
    """Sends reports to the service manager on a thread, from ``start`` to ``close``. Does nothing without one.

    ``environ`` has NOTIFY_SOCKET and the watchdog's time, if a service manager has started this process.
    """

    def __init__(
        self, server: ServerState, environ: Mapping[str, str] = os.environ, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._address: Final = environ.get("NOTIFY_SOCKET", "")
        self._reports: Final = ServiceReports(server, watchdog_seconds(environ, os.getpid()))
        self._clock: Final = clock
        self._ending: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="aeron-spark-service", daemon=True)

    def start(self) -> None:
        """Begin to send reports."""
        if self._address:
            self._thread.start()

    def report_stopping(self) -> None:
        """Report that the server has begun to end."""
        self._send(["STOPPING=1"])

    def close(self) -> None:
        """Send no further reports."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._send(self._reports.step(self._clock()))
            self._ending.wait(STEP_INTERVAL_S)

    def _send(self, lines: list[str]) -> None:
        if not self._address or not lines:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.settimeout(SEND_TIMEOUT_S)
            sending.sendto("\n".join(lines).encode(), address)


def watchdog_seconds(environ: Mapping[str, str], pid: int) -> float | None:
    """Return the time after which the service manager ends a process that does not report; None without a watchdog."""
    microseconds, watched = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(pid))
    if not microseconds.isdigit() or int(microseconds) == 0 or watched != str(pid):
        return None
    return int(microseconds) / 1_000_000

"""The parts of a server: keys, a media driver, messages, streams and their upkeep, made from an address and options."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from aeron_spark.aeron.counters import read_errors
from aeron_spark.aeron.driver import aeron_version
from aeron_spark.connection.connection import Connection
from aeron_spark.errors import REFUSALS, RefusedError, SetupError
from aeron_spark.facts import Bus
from aeron_spark.keys.client_table import ClientsChange, ClientTable
from aeron_spark.keys.clients_file import key_name
from aeron_spark.keys.stores import FilePeerStore
from aeron_spark.node.space import Space, driver_space
from aeron_spark.options import LiveOptions, ServerOptions
from aeron_spark.protocol.access import PeerStore
from aeron_spark.protocol.admin_messages import SOCKET_NAME
from aeron_spark.protocol.keypair import fingerprint
from aeron_spark.server.admin_commands import BanCommands, ConnectionCommands, ServerClients
from aeron_spark.server.admin_socket import AdminSocket
from aeron_spark.server.backups import Backups, file_paths
from aeron_spark.server.ban_file import StoredBans
from aeron_spark.server.clients_watcher import ClientsWatcher
from aeron_spark.server.connection_report import ConnectionReporter
from aeron_spark.server.disk_reserve import DiskReserve
from aeron_spark.server.event_log import EventLog
from aeron_spark.server.event_watch import EventWatch
from aeron_spark.server.http import HttpServer, json_page, parse_http_address
from aeron_spark.server.log_output import ServerLog
from aeron_spark.server.log_space import LogSpace
from aeron_spark.server.message_server import MessageServer
from aeron_spark.server.metric_counts import MetricCounts
from aeron_spark.server.metric_state import MetricReader, State
from aeron_spark.server.metrics import ServerMetrics, require_prometheus_client
from aeron_spark.server.operation_service import OperatorCommand, OperatorService
from aeron_spark.server.peer_store import is_from_environment, key_paths_of, peer_store_of
from aeron_spark.server.reloading import Reloader
from aeron_spark.server.server_node import ServerNode
from aeron_spark.server.server_state import ServerState
from aeron_spark.server.store_housekeeper import StoreHousekeeper
from aeron_spark.server.stream_report import StreamCommands
from aeron_spark.server.stream_service import StreamService
from aeron_spark.streams.store import StreamStore
from aeron_spark.transport.addresses import HostPort, ip_of
from aeron_spark.transport.api import ServerAddress
from aeron_spark.version import package_version

LOOP_TIMEOUT_S: Final = 10.0  # without a turn of the event loop, until the server is not healthy
DRAIN_POLL_S: Final = 0.01  # between two checks whether the running work has ended


class ServerParts:
    """Makes the parts of a server from its options, and starts and ends them. ``Server`` delegates to it. Thread-safe.

    The connections and the listeners belong to ``message_server``. The owner of the parts closes them, also at the end
    of the process.
    """

    def __init__(
        self, address: str, options: Mapping[str, object], store: PeerStore | None = None,
        connection_class: type[Connection] = Connection,
    ) -> None:  # fmt: skip
        """Lock the ports and the store, and start nothing. Raises what :class:`aeron_spark.Server` raises."""
        parsed = ServerOptions.parse(address, options)
        peers = store or peer_store_of(parsed)
        self.options: Final = LiveOptions(parsed)
        """The options that apply now."""
        self._addresses: Final = parsed.addresses
        self._http_address: Final = _http_address(parsed)
        self._log: Final = ServerLog(self.options)
        self.options.on_replaced = self._log.apply
        self._started_at: float | None = None
        self._facts: Final = Bus()
        self._node: Final = ServerNode(self.options, self._facts)
        clients = peers.clients if isinstance(peers, FilePeerStore) else None
        try:
            self._bans: Final = StoredBans()
            self.message_server: Final = MessageServer(
                self._node.open_transport, peers, self.options, connection_class, self._bans,
                name_of=lambda key: name_of(peers, key), clients_file=None if clients is None else clients.path,
                log_space=LogSpace(self._driver_space), facts=self._facts,
            )  # fmt: skip
            """The connections of the clients, and their listeners."""
        except BaseException:
            self._node.close()
            raise
        self._runtime: Final = self.message_server.runtime
        self._housekeeper: Final = StoreHousekeeper(self._node.open_streams, self._runtime.report)
        self.backups: Final = Backups(lambda: self._housekeeper.opened, self._backup_files, self.events)
        """The backups of the streams."""
        self._event_watch: Final = self._make_event_watch()
        self.disk_reserve: Final = DiskReserve(lambda: self._node.folders, lambda: self.options.value.disk_reserve)
        """The free space of the server's disks, and how much of it must stay free."""
        self._stream_service: Final = StreamService(
            lambda: self.streams, self._runtime.bulk_links, self.message_server.grant_of, self._runtime.deadlines,
            self.options, self.disk_reserve.refusal, self._facts,
        )  # fmt: skip
        self._runtime.pools.append(self._stream_service.pool)
        self.message_server.add_service(self._stream_service)
        self._clients_watcher: Final = ClientsWatcher(
            clients, self.message_server.apply_grants, self._runtime.report, self.events
        )
        self.state: Final = ServerState(
            self.message_server, self._housekeeper, self.disk_reserve, self.options, lambda: self.aeron_dir,
            clients, self.backups, self._node.storage_problem,
        )  # fmt: skip
        """Whether the server starts, is ready or drains."""
        self._metrics: Final = (
            None if self._http_address is None else self._make_metrics(parsed.metrics_streams, clients)
        )
        self._http: HttpServer | None = None
        self._admin_path: Final = parsed.admin_socket
        self._admin_commands: Final[dict[str, OperatorCommand]] = {
            "status": self.state.status,
            "reload": Reloader(self).run,
            **self._operator_commands(peers),
        }
        self._admin_socket: AdminSocket | None = None

    @property
    def aeron_dir(self) -> str:
        """The media driver's directory."""
        return self._node.aeron_dir

    @property
    def streams(self) -> StreamStore:
        """The server's streams, stored beside its archive. Raises SetupError if no aeron-spark node runs its driver."""
        return self._housekeeper.store

    @property
    def is_node_started_here(self) -> bool:
        """Whether this server has started its media driver."""
        return self._node.is_started_here

    @property
    def http_address(self) -> str | None:
        """The address of the pages; None while the server serves none."""
        return None if self._http is None else str(self._http.address)

    @property
    def events(self) -> EventLog:
        """The events of the server."""
        return self.message_server.events

    def add_admin_command(self, name: str, command: OperatorCommand) -> None:
        """Offer a command on the admin socket. It runs on a thread of the socket."""
        self._admin_commands[name] = command

    def reload(self) -> ClientsChange | None:
        """Reload the clients file as :meth:`Server.reload` does."""
        return self._clients_watcher.reload()

    def start(self, addresses: Sequence[ServerAddress] = ()) -> None:
        """Start the parts as :meth:`Server.start` does."""
        optional = () if addresses else self.options.value.optional_addresses
        addresses = addresses or self._addresses
        self.message_server.require_startable(addresses)
        self._node.lock_addresses(addresses)
        self._log.open()  # a second start, after a failed one, keeps it
        self._node.start()
        self._bans.open(self._node.store_folder)
        self._open_admin_socket()
        self._open_pages()
        if self._node.has_streams:
            self._housekeeper.recover()
            self._housekeeper.store.check_one_time()
        self.state.is_recovered = True
        self.message_server.start(addresses, self._node.try_lock_addresses(optional))
        self._started_at = time.monotonic()
        self.events.report("started", version=package_version(), pid=os.getpid(), aeron_dir=self.aeron_dir)
        for address in self.message_server.address_texts:
            key = fingerprint(self.message_server.public_key)
            self.events.report("listening", address=address, key=key, aeron_dir=self.aeron_dir)
        self._clients_watcher.start()
        self._event_watch.start()
        self._report_missing_guard()
        self.state.report_ready_once()

    def drain(self, timeout: float | None = None) -> bool:
        """Refuse new work, and wait for the work that runs, as :meth:`Server.drain` does."""
        self.state.is_draining = self._stream_service.is_draining = True
        self.message_server.begin_drain()
        timeout_s = self.options.value.drain_timeout if timeout is None else timeout
        self.events.report("draining", connections=len(self.message_server.connections), seconds=timeout_s)
        end = time.monotonic() + timeout_s
        while self.unfinished_work and time.monotonic() < end:
            time.sleep(DRAIN_POLL_S)
        return not self.unfinished_work

    @property
    def unfinished_work(self) -> int:
        """The number of commits that run, and of calls that were received before ``drain`` and have not ended."""
        return self.message_server.unfinished_calls + len(self._stream_service.commits)

    def close(self) -> None:
        """Send CLOSE to every client and end. The media driver stops after its last user."""
        if self._admin_socket is not None:
            self._admin_socket.close()
        if self._http is not None:
            self._http.close()
        self._event_watch.close()
        self._clients_watcher.close()
        cut_off = self.unfinished_work
        self.message_server.close(_shutdown() if self.state.is_draining else None)
        self._stream_service.close()
        self._housekeeper.close()
        self._node.close()
        started_at, self._started_at = self._started_at, None
        if started_at is not None:
            self.events.report("stopped", seconds=time.monotonic() - started_at, cut_off=cut_off)
        self._log.close()

    def _make_event_watch(self) -> EventWatch:
        memory = self._runtime.holds.memory
        return EventWatch(
            self.events, lambda: self.disk_reserve.volumes(), lambda: self.disk_reserve.reserve_bytes,
            self._driver_space, lambda: (memory.held, memory.limit),
            lambda: read_errors(self.aeron_dir), self.backups.check,
        )  # fmt: skip

    def _driver_space(self) -> Space:
        return driver_space(Path(self.aeron_dir))

    def _backup_files(self) -> dict[str, str]:
        options, paths = self.options.value, key_paths_of(self.options.value)
        return file_paths(
            str(self._node.folders.get("archive", "")),
            None if options.allow_any_key else paths.authorized_keys,
            None if is_from_environment(options) else paths.identity,
            self.backups.config_file,
        )

    def _make_metrics(self, max_streams: int, clients: ClientTable | None) -> ServerMetrics:
        counts = MetricCounts(self._facts)

        def read_state() -> State:
            return MetricReader(
                self.message_server, counts, lambda: self.streams if self._housekeeper.is_open else None,
                self.disk_reserve, lambda: self.aeron_dir, lambda: self.state.readiness.is_ready,
                lambda: [] if clients is None else clients.grants().values(), self.state.limits,
                lambda: self._log.dropped_total,
                (package_version(), aeron_version()), self.backups,
            ).read()  # fmt: skip

        metrics = ServerMetrics(counts, read_state, max_streams)
        self._runtime.loop.on_turn = counts.event_loop.add
        return metrics

    def _open_pages(self) -> None:
        """Serve the HTTP pages if an option says so; a second start, after a failed one, keeps them."""
        if self._metrics is None or self._http_address is None or self._http is not None:
            return
        metrics = self._metrics
        self._http = HttpServer(
            self._http_address,
            {
                "/metrics": lambda: (200, metrics.content_type, metrics.exposition()),
                "/healthz": self._show_health,
                "/readyz": self._show_readiness,
            },
        )
        address = ip_of(self._http_address.host)
        if address is None or not address.is_loopback:
            self._report(
                SetupError(
                    f"the pages at http://{self._http_address} have no authentication, and other hosts may reach them",
                    remedy="Give --http an address of 127.0.0.1, or let a firewall admit the Prometheus server only.",
                )
            )

    def _show_health(self) -> tuple[int, str, bytes]:
        silent_s = time.monotonic() - self._runtime.loop.turned_at
        if silent_s < LOOP_TIMEOUT_S:
            return 200, "text/plain", b"ok\n"
        return 503, "text/plain", f"the event loop has not turned for {silent_s:.0f} s\n".encode()

    def _show_readiness(self) -> tuple[int, str, bytes]:
        reasons = [f"{name}: {problem}" for name, problem in self.state.readiness.reasons.items()]
        return json_page(503 if reasons else 200, reasons)

    def _operator_commands(self, peers: PeerStore) -> dict[str, OperatorCommand]:
        reporter = ConnectionReporter(self._runtime, self.message_server.grant_of, self._stream_service.streams_of)
        clients = ServerClients(self.message_server, peers, self._bans, reporter)
        return {
            "streams.list": StreamCommands(lambda: self._housekeeper.opened).list_streams,
            **self.backups.commands,
            **ConnectionCommands(clients).commands,
            **BanCommands(clients).commands,
        }

    def _open_admin_socket(self) -> None:
        """Open the admin socket; a second start, after a failed one, keeps it."""
        folder = self._node.store_folder
        path = folder / SOCKET_NAME if self._admin_path is None and folder is not None else self._admin_path
        if self._admin_socket is None and path is not None:
            service = OperatorService(self._admin_commands, self._report)
            self._admin_socket = AdminSocket(Path(path), service.respond, self._report)

    def _report(self, error: BaseException) -> None:
        self._runtime.report(None, error)

    def _report_missing_guard(self) -> None:
        # after listening: a driver shows its guard only once it has guarded a channel
        is_on_network = any(address.media == "udp" for address in self.message_server.addresses)
        problem = self._node.guard_problem() if is_on_network else None
        if problem is not None:
            self._runtime.report(None, problem)


def _http_address(options: ServerOptions) -> HostPort | None:
    """Return where the server serves HTTP pages. Raises OptionError, also without the package that it needs."""
    if options.http is None:
        return None
    require_prometheus_client()
    return parse_http_address(options.http)


def name_of(peers: PeerStore, key: bytes) -> str:
    """Return the name of a client's key for logs: the one in the clients file, if it has one."""
    grant = peers.grant(key) if isinstance(peers, FilePeerStore) else None  # another store may be slow
    return key_name(key, grant)


def _shutdown() -> RefusedError:
    return RefusedError("the server is shutting down", remedy=REFUSALS["shutdown"].remedy, reason="shutdown")

"""``aeron_spark.Server``: the server with keys, a media driver and Aeron, made from an address and options."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aeron_spark.aeron.counters import read_errors
from aeron_spark.aeron.driver import aeron_version
from aeron_spark.endpoint.access import ClientAccess, LogSpace
from aeron_spark.endpoint.bulk_opening import BulkLinkService
from aeron_spark.endpoint.connection import Connection, grant_of
from aeron_spark.endpoint.endpoint import Endpoint
from aeron_spark.endpoint.loop import Loop
from aeron_spark.endpoint.server_endpoint import ServerEndpoint
from aeron_spark.errors import REFUSALS, AeronSparkError, RefusedError, SetupError
from aeron_spark.facts import Bus
from aeron_spark.keys.bans import StoredBans
from aeron_spark.keys.clients_file import ClientsChange, ClientTable, key_name
from aeron_spark.keys.key_files import read_shared_secret
from aeron_spark.keys.stores import FilePeerStore
from aeron_spark.node.paths import Space, driver_space
from aeron_spark.options import LiveOptions, OptionChanges, ServerOptions
from aeron_spark.process import ExitHook
from aeron_spark.protocol.access import PeerStore
from aeron_spark.protocol.admin_messages import SOCKET_NAME
from aeron_spark.protocol.grants import Grant
from aeron_spark.protocol.keypair import fingerprint
from aeron_spark.server.backups import Backups, file_paths
from aeron_spark.server.clients import CLIENTS, ClientsWatcher, is_from_environment, key_paths_of, peer_store_of
from aeron_spark.server.event_log import EventLog
from aeron_spark.server.http import HttpServer, json_page, parse_http_address, require_prometheus_client
from aeron_spark.server.log_output import ServerLogOutput
from aeron_spark.server.metrics import MetricCounts, MetricReader, ServerMetrics, State
from aeron_spark.server.operator import (
    AdminSocket,
    BanCommands,
    ConnectionCommands,
    ConnectionReporter,
    OperatorCommand,
    OperatorService,
    ServerClients,
    StreamCommands,
)
from aeron_spark.server.server_node import ServerNode
from aeron_spark.server.state import Readiness, ServerState
from aeron_spark.server.stream_operations import StreamService
from aeron_spark.server.watch import DiskReserve, EventWatch, StoreHousekeeper
from aeron_spark.streams.store import StreamStore
from aeron_spark.transport.addresses import HostPort, ip_of
from aeron_spark.transport.api import ServerAddress
from aeron_spark.version import package_version

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from aeron_spark.options.keywords import ServerOptions as Keywords

CONFIGURATION: Final = "configuration"  # in events about a reload
LOOP_TIMEOUT_S: Final = 10.0  # without a turn of the event loop, until the server is not healthy
DRAIN_POLL_S: Final = 0.01  # between two checks whether the running work has ended


class Server(Endpoint[ServerEndpoint]):
    """A server of the secure endpoint on this machine's media driver.

    ``address`` is ``host:port`` or ``host:port:control``; ``*:port`` is every IPv4 and IPv6 address. ``options`` are
    those of docs/options.md, written as there or with underscores. Examples: ``identity``, the file of the server's
    key, which is created if it is missing, or ``env:NAME``; ``authorized_keys``, the file of the only client keys that
    the server admits; ``max_connections``.

    Until ``close``, the server locks its ports at the media driver and its store of streams. Raises OptionError for a
    wrong option, InUseError if another process uses a port or the store. The media driver starts with the server, or
    at the first use of ``streams``.

    ``run`` serves until ``close``; ``start`` returns at once.
    """

    def __init__(
        self,
        address: str = "",
        *,
        store: PeerStore | None = None,
        connection_class: type[Connection] = Connection,
        **options: Unpack[Keywords],
    ) -> None:
        parsed = ServerOptions.parse(address, options)
        peers = store or peer_store_of(parsed)
        clients = peers.clients if isinstance(peers, FilePeerStore) else None
        self._live: Final = LiveOptions(parsed)
        self._peers: Final = peers
        self._read_options: Callable[[], ServerOptions] | None = None  # reads the configuration again
        self._reloading: Final = threading.Lock()
        self._http_address: Final = _http_address(parsed)
        self._http: HttpServer | None = None
        self._log: Final = ServerLogOutput(self._live)
        self._live.on_replaced = self._log.apply
        self._started_at: float | None = None
        self._cut_off = 0  # the work that had not finished when the connections were closed
        self._facts: Final = Bus()
        self._events: Final = EventLog(
            self._facts, lambda key: name_of(peers, key), None if clients is None else clients.path
        )
        self._opened: Final = ExitStack()
        """Closes what clients and operators use: first what ``start`` has opened, then the connections."""
        with ExitStack() as made:  # a part that cannot be made ends those before it
            self._node: Final = ServerNode(self._live, self._facts)
            made.callback(self._node.close)
            self._bans: Final = StoredBans()
            super().__init__(self._make_endpoint(connection_class))
            self._housekeeper: Final = StoreHousekeeper(self._node.open_streams, self._endpoint.report)
            made.callback(self._housekeeper.close)
            self._backups: Final = Backups(lambda: self._housekeeper.opened, self._backup_files, self.events)
            self._disk_reserve: Final = DiskReserve(lambda: self._node.folders, lambda: self._live.value.disk_reserve)
            self._stream_service: Final = self._make_stream_service()
            made.callback(self._stream_service.close)
            self._endpoint.fair_pools += (self._stream_service.pool,)
            self._endpoint.add_service(self._stream_service.serve)
            self._clients_watcher: Final = ClientsWatcher(
                clients, self._endpoint.apply_grants, self._endpoint.report, self.events
            )
            self._event_watch: Final = self._make_event_watch()
            self._state: Final = self._make_state(clients)
            self._metrics: Final = None if self._http_address is None else self._make_metrics()
            self._storage: Final = made.pop_all()
            """Closes the streams, then releases the node and all locks."""
        self._opened.callback(self._close_connections)
        self._exit_hook: Final = ExitHook(self.close)

    def _make_endpoint(self, connection_class: type[Connection]) -> ServerEndpoint:
        """Make the endpoint over the transport of the node, with its service for bulk links."""
        loop = Loop("aeron-spark-server")
        endpoint = ServerEndpoint(
            loop,
            self._node.open_transport,
            ClientAccess(self._peers, self._live, self._bans, loop),
            self._live,
            self._facts,
            connection_class,
        )
        endpoint.log_space = LogSpace(self._driver_space)
        endpoint.add_service(lambda connection: BulkLinkService(endpoint, connection).offer())
        return endpoint

    def _make_stream_service(self) -> StreamService:
        return StreamService(
            lambda: self.streams,
            self._endpoint.bulk_links,
            self._endpoint.loop,
            self._live,
            self._disk_reserve.refusal,
            self._facts,
        )

    def _make_state(self, clients: ClientTable | None) -> ServerState:
        return ServerState(
            self._endpoint,
            self.events,
            self._housekeeper,
            self._disk_reserve,
            self._node,
            clients,
            self._backups,
        )

    def _make_event_watch(self) -> EventWatch:
        memory = self._endpoint.holds.memory
        return EventWatch(
            self.events,
            self._disk_reserve.volumes,
            lambda: self._disk_reserve.reserve_bytes,
            self._driver_space,
            lambda: (memory.held, memory.limit),
            lambda: read_errors(self.aeron_dir),
            self._backups.check,
        )

    def _make_metrics(self) -> ServerMetrics:
        counts = MetricCounts(self._facts)

        def read_state() -> State:
            versions = (package_version(), aeron_version())
            return MetricReader(self._state, counts, lambda: self._log.dropped_total, versions).read()

        metrics = ServerMetrics(counts, read_state, self._live.value.metrics_streams)
        self._endpoint.loop.on_turn = counts.event_loop.add
        return metrics

    def _operator_commands(self) -> dict[str, OperatorCommand]:
        reporter = ConnectionReporter(self._endpoint, self._stream_service.streams_of)
        clients = ServerClients(self.events, self._peers, self._bans, reporter)
        return {
            "status": self._state.status,
            "reload": self._reload_files,
            "streams.list": StreamCommands(lambda: self._housekeeper.opened).list_streams,
            **self._backups.commands,
            **ConnectionCommands(clients).commands,
            **BanCommands(clients).commands,
        }

    @property
    def aeron_dir(self) -> str:
        """The media driver's directory."""
        return self._node.aeron_dir

    @property
    def streams(self) -> StreamStore:
        """The server's streams, stored beside its archive. Raises SetupError if no aeron-spark node runs its driver."""
        return self._housekeeper.store

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses on which the server listens: ``host:port:control``, or ``ipc:``."""
        return self._endpoint.address_texts

    @property
    def public_key(self) -> bytes:
        """The server's public key, by which clients know it."""
        return self._endpoint.public_key

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connections whose link is connected."""
        return tuple(connection.for_program for connection in self._endpoint.connected)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self.connections)

    @property
    def statistics(self) -> dict[str, int]:
        """Counts of used resources, and of refusals by code."""
        return self._endpoint.statistics

    @property
    def events(self) -> EventLog:
        """The events of the server, which it logs (docs/events.md)."""
        return self._events

    def grant_of(self, connection: Connection) -> Grant:
        """Return the grant of the client of a connection. Raises EndedError if it is closed."""
        return grant_of(connection)

    def reload(self) -> ClientsChange | None:
        """Read the clients file again now, and apply it to all clients; return the changes, or None without a file.

        Raises SetupError or DataFormatError if the file is missing or wrong; then the last good version stays.
        """
        return self._clients_watcher.reload()

    def on_message(self, kind: type, listener: Callable[[Connection, Any], object]) -> None:
        """Call ``listener(connection, message)`` for each message of this class or a subclass, of all connections."""
        self._endpoint.message_listeners.add(kind, listener)

    @property
    def readiness(self) -> Readiness:
        """Whether the server is ready, and why not."""
        return self._state.readiness

    @property
    def http_address(self) -> str | None:
        """The address of the pages ``/metrics``, ``/healthz`` and ``/readyz``; None while it serves none."""
        return None if self._http is None else str(self._http.address)

    def start(self, addresses: Sequence[ServerAddress] = ()) -> None:
        """Start the media driver, recover the streams, then listen on all addresses, or on none.

        ``addresses`` replace those of the options. Reports a media driver without the guard to the error listeners,
        once. Raises InUseError if another process uses one of the ports or the admin socket, TransportError if
        listening on an address fails for another reason, SetupError if the media driver cannot start, and the errors
        of opening the store and the file of the bans. A stream that is damaged does not end the start; a store whose
        streams are all of another time than the archive does: DataLossError.
        """
        options = self._live.value
        optional = () if addresses else options.optional_addresses
        addresses = addresses or options.addresses
        self._endpoint.require_startable(addresses)
        self._node.lock_addresses(addresses)
        self._log.open()  # until ``close``, with the reports of a start that fails
        self._node.start()  # until ``close``, which releases its lock of the store
        self._bans.open(self._node.store_folder)
        with ExitStack() as opened:  # a step that fails undoes those before it
            self._open_admin_socket(opened)
            self._open_pages(opened)
            if self._node.has_streams:
                self._housekeeper.recover()
                self._housekeeper.store.check_one_time()
            self._state.is_recovered = True
            self._endpoint.start(addresses, self._node.try_lock_addresses(optional))
            self._started_at = time.monotonic()
            self.events.report("started", version=package_version(), pid=os.getpid(), aeron_dir=self.aeron_dir)
            for address in self.addresses:
                key = fingerprint(self.public_key)
                self.events.report("listening", address=address, key=key, aeron_dir=self.aeron_dir)
            self._clients_watcher.start()
            opened.callback(self._clients_watcher.close)
            self._event_watch.start()
            opened.callback(self._event_watch.close)
            self._opened.push(opened.pop_all())
        self._report_missing_guard()
        self._state.report_ready_once()

    def run(self) -> None:
        """Serve until the server is closed; Ctrl-C closes it."""
        try:
            self.start()
            self.wait_closed()
        except KeyboardInterrupt:
            pass
        finally:
            self.close()

    def drain(self, timeout: float | None = None) -> bool:
        """Refuse new clients, transactions, stages and commits, and wait until the running commits and calls end.

        Return whether they ended within ``timeout`` seconds, by default ``drainTimeout``. The server is not ready
        any more. A later ``close`` asks the clients to connect again, each after a random pause.
        """
        self._state.is_draining = self._stream_service.is_draining = True
        self._endpoint.begin_drain()
        timeout_s = self._live.value.drain_timeout if timeout is None else timeout
        self.events.report("draining", connections=len(self.connections), seconds=timeout_s)
        end = time.monotonic() + timeout_s
        while self._unfinished_work and time.monotonic() < end:
            time.sleep(DRAIN_POLL_S)
        return not self._unfinished_work

    def close(self) -> None:
        """Send CLOSE to every client and end. The media driver stops after its last user."""
        self._exit_hook.cancel()
        self._opened.close()
        self._storage.close()
        started_at, self._started_at = self._started_at, None
        if started_at is not None:
            self.events.report("stopped", seconds=time.monotonic() - started_at, cut_off=self._cut_off)
        self._log.close()

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Steps of the methods above

    @property
    def _unfinished_work(self) -> int:
        """The number of commits that run, and of calls that were received before ``drain`` and have not ended."""
        return self._endpoint.unfinished_calls + len(self._stream_service.commits)

    def _close_connections(self) -> None:
        self._cut_off = self._unfinished_work
        shutdown = RefusedError("the server is shutting down", remedy=REFUSALS["shutdown"].remedy, reason="shutdown")
        self._endpoint.close(shutdown if self._state.is_draining else None)

    def _open_admin_socket(self, opened: ExitStack) -> None:
        folder, path = self._node.store_folder, self._live.value.admin_socket
        if path is None:
            path = None if folder is None else str(folder / SOCKET_NAME)
        if path is not None:
            report = partial(self._endpoint.report, None)
            socket = AdminSocket(Path(path), OperatorService(self._operator_commands(), report).respond, report)
            opened.callback(socket.close)

    def _open_pages(self, opened: ExitStack) -> None:
        """Serve the HTTP pages if an option says so."""
        metrics, at = self._metrics, self._http_address
        if metrics is None or at is None:
            return
        pages = {
            "/metrics": lambda: (200, metrics.content_type, metrics.exposition()),
            "/healthz": self._show_health,
            "/readyz": self._show_readiness,
        }
        self._http = HttpServer(at, pages)
        opened.callback(self._close_pages)
        address = ip_of(at.host)
        if address is None or not address.is_loopback:
            self._endpoint.report(
                None,
                SetupError(
                    f"the pages at http://{at} have no authentication, and other hosts may reach them",
                    remedy="Give --http an address of 127.0.0.1, or let a firewall admit the Prometheus server only.",
                ),
            )

    def _close_pages(self) -> None:
        pages, self._http = self._http, None
        if pages is not None:
            pages.close()

    def _show_health(self) -> tuple[int, str, bytes]:
        silent_s = time.monotonic() - self._endpoint.loop.turned_at
        if silent_s < LOOP_TIMEOUT_S:
            return 200, "text/plain", b"ok\n"
        return 503, "text/plain", f"the event loop has not turned for {silent_s:.0f} s\n".encode()

    def _show_readiness(self) -> tuple[int, str, bytes]:
        reasons = [f"{name}: {problem}" for name, problem in self.readiness.reasons.items()]
        return json_page(503 if reasons else 200, reasons)

    def _report_missing_guard(self) -> None:
        # after listening: a driver shows its guard only once it has guarded a channel
        is_on_network = any(address.media == "udp" for address in self._endpoint.addresses.values())
        problem = self._node.guard_problem() if is_on_network else None
        if problem is not None:
            self._endpoint.report(None, problem)

    def _driver_space(self) -> Space:
        return driver_space(Path(self.aeron_dir))

    def _backup_files(self) -> dict[str, str]:
        options, paths = self._live.value, key_paths_of(self._live.value)
        return file_paths(
            str(self._node.folders.get("archive", "")),
            None if options.allow_any_key else paths.authorized_keys,
            None if is_from_environment(options) else paths.identity,
            self._backups.config_file,
        )

    # Reloads

    def _reload_files(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Reload the configuration, if ``_read_options`` reads one, and the clients file, both or none of the two.

        Report the event, and return what changed: a command of the admin socket, without arguments. Raises
        OptionError, SetupError or DataFormatError for a wrong file.
        """
        options = self._live
        unused: tuple[str, ...] = (CONFIGURATION,)  # the files whose new version is not used if the next step fails
        try:
            with self._reloading:  # one reload at a time, or the older of two files could apply last
                configured = None if self._read_options is None else self._read_options()
                # before the clients file applies: all or nothing
                preview = OptionChanges()
                if configured is not None:
                    preview = options.compare(configured)
                    read_shared_secret(options.value.shared_secret_file)  # without it, the next start would fail
                unused = (CONFIGURATION, CLIENTS) if preview.changed else (CLIENTS,)
                clients = self.reload()
                changes = OptionChanges() if configured is None else options.replace(configured)
        except AeronSparkError as error:
            self.events.report("reload_failed", files=unused, error=error.what, remedy=error.remedy)
            raise
        names = {} if clients is None else {
            "added": clients.added, "removed": clients.removed, "changed": clients.changed,
            "narrowed": clients.narrowed,
        }  # fmt: skip
        client_changes = tuple(f"clients {what}: {', '.join(keys)}" for what, keys in names.items() if keys)
        self.events.report(
            "reloaded", changed=(*changes.changed, *client_changes), restart_needed=changes.restart_needed
        )
        return {
            "changed": list(changes.changed),
            "restart_needed": list(changes.restart_needed),
            "clients": {what: list(keys) for what, keys in names.items()},
        }


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

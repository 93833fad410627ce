"""Servers and clients in one process, connected by the in-memory network."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeVar

from aeron_spark.client.client import Client
from aeron_spark.endpoint.client_endpoint import NAME, ClientEndpoint
from aeron_spark.endpoint.connection import Connection
from aeron_spark.endpoint.endpoint import Endpoint, EndpointCore
from aeron_spark.endpoint.loop import Loop
from aeron_spark.facts import Bus
from aeron_spark.keys.bans import StoredBans
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.options import ClientOptions, LiveOptions, ServerOptions
from aeron_spark.protocol.access import PeerStore, ServerName
from aeron_spark.protocol.liveness import Times
from aeron_spark.reused_threads import IDLE_NAME
from aeron_spark.server.event_log import EventLog
from aeron_spark.transport.api import ServerAddress
from tests.memory_transport import MemoryClientTransport, MemoryNetwork, MemoryServerTransport
from tests.message_server import MessageServer
from tests.option_groups import options_of
from tests.remains import remains_in
from tests.stepped_loop import VirtualTime

T = TypeVar("T")

TIMEOUT_S: Final = 20.0  # of waits that take milliseconds on an idle machine
ADDRESS: Final = ServerAddress("udp", "10.0.0.1", 20121, 20122)
SHORT: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "expiry": 0.3, "setup_timeout": 2.0, "linger": 0.1, "ping_timeout": 5.0, "session_timeout": 60.0,
        "close_timeout": 1.0, "send_timeout": 10.0,
    }
)  # fmt: skip
"""Options of both ends, with times that a test can wait for."""
ALONE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "handshakes_per_second": 0.0, "max_pending_per_address": 0, "workers_per_key": ServerOptions.workers,
        "memory_limit": 0, "measures_round_trip": False,
    }
)  # fmt: skip
"""Of a server with a few clients at one address, which sends no frames of its own."""


def server_options(**changes: Any) -> ServerOptions:
    """Return the options of a server in these tests, which admits any key, with changes: of options and groups."""
    return options_of(ServerOptions, {**SHORT, **ALONE, "allow_any_key": True, **changes})


def client_options(**changes: Any) -> ClientOptions:
    """Return the options of a client in these tests, with changes: of options and groups."""
    return options_of(ClientOptions, {**SHORT, **changes})


def quick_client(**changes: Any) -> ClientOptions:
    """Return the options of a client that tries again soon, with changes."""
    return client_options(**{"first_pause": 0.01, "longest_pause": 0.05, **changes})


def kept_for(seconds: float) -> dict[str, Any]:
    """Return what changes in options so that sessions are kept for ``seconds``."""
    times = Times(
        retention_seconds=seconds, min_retention_seconds=0.1, expiry_seconds=0.1, linger_seconds=0.0,
        setup_seconds=SHORT["setup_timeout"], ping_seconds=SHORT["ping_timeout"],
    )  # fmt: skip
    session = replace(client_options().session_limits, retention_seconds=seconds, buffer_seconds=seconds)
    return {"times": times, "session_limits": session}


def flood(client: Client, size: int, timeout: float) -> None:
    """Send until the client accepts no more, and raise its WaitTimeout."""
    for _ in range(5000):
        client.send(bytes(size), timeout=timeout)


def wait_for(condition: Callable[[], object], what: str = "", seconds: float = TIMEOUT_S) -> None:
    """Wait until a condition is true, or fail. In virtual time, the endpoints work meanwhile."""
    world = World.current
    if world is not None and world.time is not None:
        assert world.time.run_until(condition, seconds), f"waited {seconds:g} s for {what or condition}"
        return
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what or condition}"
        time.sleep(0.001)


def result_of(future: Future[T]) -> T:
    """Return the result of a future that an endpoint ends, or raise its error."""
    wait_for(future.done, "the end of a future")
    return future.result(0)


class RecordedEvents:
    """Records the listener calls of an endpoint, in order."""

    def __init__(self, endpoint: Endpoint[Any]) -> None:
        self.events: list[tuple[str, Connection]] = []
        self.errors: list[BaseException] = []
        self.threads: set[str] = set()
        for name in ("init", "connect", "resume", "disconnect"):
            getattr(endpoint, f"on_{name}")(lambda connection, name=name: self._record(name, connection))
        endpoint.on_error(lambda _, error: self.errors.append(error))

    def _record(self, name: str, connection: Connection) -> None:
        self.threads.add(threading.current_thread().name)
        self.events.append((name, connection))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def count(self, name: str) -> int:
        return self.names.count(name)

    def errors_of(self, kind: type[BaseException]) -> list[BaseException]:
        return [error for error in list(self.errors) if isinstance(error, kind)]


class World:
    """A network with its endpoints; ``close`` closes them and checks that nothing is left.

    With ``virtual`` time, the endpoints have no threads: the waits of the test, and of the calls in it, let them work.
    """

    current: ClassVar[World | None] = None
    """The world of the test that runs."""

    def __init__(self, *, virtual: bool = False) -> None:
        self.time = VirtualTime() if virtual else None
        if self.time is None:
            self.network = MemoryNetwork(window=1 << 20)
        else:
            self.network = MemoryNetwork(window=1 << 20, clock=self.time.clock, sleep=self.time.sleep)
            self.time.next_event = self.network.next_arrival
        World.current = self
        self.endpoints: list[MessageServer | Client] = []
        self.cores: list[EndpointCore] = []
        self.recorded: dict[MessageServer | Client, RecordedEvents] = {}
        self._threads_before = frozenset(
            one for one in threading.enumerate() if one.name != IDLE_NAME
        )  # threads of wider fixtures

    def threads(self) -> list[str]:
        """Return the names of running endpoint threads that started after this world."""
        fresh = set(threading.enumerate()) - self._threads_before
        return sorted(one.name for one in fresh if one.name.startswith("aeron-spark-") and one.name != IDLE_NAME)

    def clock(self) -> float:
        """Return the time in seconds, monotonic."""
        return self.network.clock()

    def sleep(self, seconds: float) -> None:
        """Let the endpoints work for so long."""
        self.network.sleep(seconds)

    def loop(self, name: str) -> Loop:
        """Return the loop of a new endpoint."""
        return Loop(name) if self.time is None else self.time.loop(name)

    def server(
        self, options: ServerOptions | LiveOptions | None = None, *, store: PeerStore | None = None,
        addresses: Iterable[ServerAddress] = (ADDRESS,), connection_class: type[Connection] = Connection,
        start: bool = True, bans: StoredBans | None = None, clients_file: Path | None = None,
    ) -> MessageServer:  # fmt: skip
        live = options if isinstance(options, LiveOptions) else LiveOptions(options or server_options())
        server = MessageServer(
            lambda: MemoryServerTransport(self.network), store or MemoryPeerStore(),
            live, connection_class, bans=bans, events=EventLog(Bus(), clients_file=clients_file),
            loop=self.loop("aeron-spark-server"),
        )  # fmt: skip
        self.cores.append(server.endpoint)
        self.add(server)
        if start:
            server.start(list(addresses))
        return server

    def client_endpoint(
        self, options: ClientOptions | None = None, *, store: PeerStore | None = None,
        address: ServerAddress = ADDRESS, source: str = "192.0.2.7:4000",
        connection_class: type[Connection] = Connection, dial: Callable[[], MemoryClientTransport] | None = None,
        on_closed: Callable[[bool], object] = lambda _: None, opens: bool = True,
    ) -> ClientEndpoint:  # fmt: skip
        """Return the endpoint of a client that is not connected. The test closes that client."""
        dial = dial or (lambda: MemoryClientTransport(self.network, address, source=source))
        endpoint = ClientEndpoint(
            dial,
            ServerName("ipc:/dev/shm/aeron", 0)
            if address.media == "ipc"
            else ServerName(address.host, address.data_port),
            store or MemoryPeerStore(),
            options or quick_client(tag="desk-7"),
            connection_class,
            loop=self.loop(NAME),
        )
        endpoint.on_closed = on_closed
        if opens:
            endpoint.open(dial)
        self.cores.append(endpoint)
        return endpoint

    def client(self, options: ClientOptions | None = None, *, connect: bool = True, **arguments: Any) -> Client:
        """Return a client; the other arguments are those of :meth:`client_endpoint`."""
        client = Client(self.client_endpoint(options, **arguments))
        self.add(client)
        if connect:
            client.connect(TIMEOUT_S)
        return client

    def pair(self, **changes: Any) -> tuple[MessageServer, Client]:
        """Return a server and a client that are connected, with the same changes of their options."""
        server = self.server(server_options(**changes))
        client = self.client(quick_client(tag="desk-7", **changes))
        wait_for(lambda: server.connections, "the server's connection")
        return server, client

    def add(self, endpoint: MessageServer | Client) -> None:
        """Record the events of an endpoint from now on, and close it at the end."""
        self.endpoints.append(endpoint)
        self.recorded[endpoint] = RecordedEvents(endpoint)

    def close(self) -> None:
        try:
            self._close()
        finally:
            World.current = None

    def _close(self) -> None:
        self.network.change = None
        self.network.heal()
        for endpoint in [one for one in self.endpoints if isinstance(one, Client)]:
            endpoint.close()
        for endpoint in self.endpoints:
            endpoint.close()
            if isinstance(endpoint, MessageServer):
                in_use = {name: n for name, n in endpoint.statistics.items() if n and name not in COUNTERS}
                assert not {name: n for name, n in in_use.items() if not name.startswith("refused-")}, in_use
        if self.time is not None:
            self.time.run_until(lambda: not self.time.work, TIMEOUT_S)  # listeners of the end
        for core in self.cores:
            assert core.loop.failed is None, f"the event loop logged {core.loop.failed!r}"
        wait_for(lambda: not self.threads(), f"the threads {self.threads()} to end")
        connections = {connection for one in self.recorded.values() for _, connection in one.events}
        remains = remains_in(*self.endpoints, *self.cores, *connections)
        assert not remains, f"ended endpoints and connections keep {remains}"
        assert not self.network.subscriptions
        assert not self.network.publications


COUNTERS: Final = frozenset({"dropped", "tampered"})

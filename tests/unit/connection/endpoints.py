"""Servers and clients in one process, connected by the in-memory network."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from aeron_spark.client.client import Client
from aeron_spark.client.runner import ClientRunner
from aeron_spark.client.settings import ClientSettings
from aeron_spark.connection.connection import Connection
from aeron_spark.connection.endpoint import Endpoint
from aeron_spark.connection.runtime import Runtime
from aeron_spark.connection.settings import RECORD_BYTES, LinkSettings
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol.access import PeerStore, ServerName
from aeron_spark.protocol.limits import Limits
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.session import SessionLimits
from aeron_spark.reused_threads import IDLE_NAME
from aeron_spark.server.ban_file import StoredBans
from aeron_spark.server.message_server import MessageServer
from aeron_spark.server.settings import ServerSettings
from aeron_spark.transport.api import ServerAddress
from tests.memory_transport import MemoryClientTransport, MemoryNetwork, MemoryServerTransport
from tests.remains import remains_in

TIMEOUT_S: Final = 20.0  # of waits that take milliseconds on an idle machine
ADDRESS: Final = ServerAddress("udp", "10.0.0.1", 20121, 20122)
SHORT_TIMES: Final = Times(
    expiry_seconds=0.3, setup_seconds=2.0, linger_seconds=0.1, ping_seconds=5.0, retention_seconds=60.0
)
NO_LIMITS: Final = Limits(handshakes_per_second=0, pending_per_address=0)
SESSION: Final = SessionLimits(max_record_bytes=RECORD_BYTES, buffer_seconds=60.0, retention_seconds=60.0)
LINK: Final = LinkSettings(times=SHORT_TIMES, session=SESSION, close_seconds=1.0, send_seconds=10.0)


def link(**changes: Any) -> LinkSettings:
    """Return the settings of links in these tests, with changes."""
    return replace(LINK, **changes)


def kept_for(seconds: float) -> LinkSettings:
    """Return settings of sessions that are kept for ``seconds``."""
    times = replace(
        SHORT_TIMES, retention_seconds=seconds, min_retention_seconds=0.1, expiry_seconds=0.1, linger_seconds=0.0
    )
    return link(times=times, session=replace(LINK.session, retention_seconds=seconds, buffer_seconds=seconds))


def flood(client: Client, size: int, timeout: float) -> None:
    """Send until the client accepts no more, and raise its WaitTimeout."""
    for _ in range(5000):
        client.send(bytes(size), timeout=timeout)


def wait_for(condition: Callable[[], object], what: str = "", seconds: float = TIMEOUT_S) -> None:
    """Wait until a condition is true, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what or condition}"
        time.sleep(0.001)


class RecordedEvents:
    """Records the listener calls of an endpoint, in order."""

    def __init__(self, endpoint: Endpoint) -> None:
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
    """A network with its endpoints; ``close`` closes them and checks that nothing is left."""

    def __init__(self) -> None:
        self.network = MemoryNetwork(window=1 << 20)
        self.endpoints: list[MessageServer | Client] = []
        self.runtimes: list[Runtime] = []
        self.recorded: dict[MessageServer | Client, RecordedEvents] = {}
        self._threads_before = frozenset(
            one for one in threading.enumerate() if one.name != IDLE_NAME
        )  # threads of wider fixtures

    def threads(self) -> list[str]:
        """Return the names of running endpoint threads that started after this world."""
        fresh = set(threading.enumerate()) - self._threads_before
        return sorted(one.name for one in fresh if one.name.startswith("aeron-spark-") and one.name != IDLE_NAME)

    def server(
        self, settings: ServerSettings | None = None, *, store: PeerStore | None = None,
        addresses: Iterable[ServerAddress] = (ADDRESS,), connection_class: type[Connection] = Connection,
        start: bool = True, allow_any_key: bool = True, bans: StoredBans | None = None,
        clients_file: Path | None = None,
    ) -> MessageServer:  # fmt: skip
        given = settings or ServerSettings(link=LINK, limits=NO_LIMITS)
        server = MessageServer(
            lambda: MemoryServerTransport(self.network), store or MemoryPeerStore(),
            replace(given, allow_any_key=allow_any_key), connection_class, bans=bans, clients_file=clients_file,
        )  # fmt: skip
        self.runtimes.append(server.runtime)
        self.add(server)
        if start:
            server.start(list(addresses))
        return server

    def runner(
        self, settings: ClientSettings | None = None, *, store: PeerStore | None = None,
        address: ServerAddress = ADDRESS, source: str = "192.0.2.7:4000",
        connection_class: type[Connection] = Connection, dial: Callable[[], MemoryClientTransport] | None = None,
        on_closed: Callable[[bool], object] = lambda _: None, opens: bool = True,
    ) -> ClientRunner:  # fmt: skip
        """Return the runner of a client that is not connected. The test closes that client."""
        dial = dial or (lambda: MemoryClientTransport(self.network, address, source=source))
        runner = ClientRunner(
            dial,
            ServerName("ipc:/dev/shm/aeron", 0)
            if address.media == "ipc"
            else ServerName(address.host, address.data_port),
            store or MemoryPeerStore(),
            settings or ClientSettings(link=LINK, tag="desk-7", first_pause=0.01, longest_pause=0.05),
            connection_class,
            on_closed=on_closed,
        )
        if opens:
            runner.open(dial)
        self.runtimes.append(runner.runtime)
        return runner

    def client(self, settings: ClientSettings | None = None, *, connect: bool = True, **arguments: Any) -> Client:
        """Return a client; the other arguments are those of :meth:`runner`."""
        client = Client(self.runner(settings, **arguments))
        self.add(client)
        if connect:
            client.connect(TIMEOUT_S)
        return client

    def pair(self, **link_changes: Any) -> tuple[MessageServer, Client]:
        """Return a server and a client that are connected, with the same settings."""
        both = link(**link_changes)
        server = self.server(ServerSettings(link=both, limits=NO_LIMITS))
        client = self.client(ClientSettings(link=both, tag="desk-7", first_pause=0.01, longest_pause=0.05))
        wait_for(lambda: server.connections, "the server's connection")
        return server, client

    def add(self, endpoint: MessageServer | Client) -> None:
        """Record the events of an endpoint from now on, and close it at the end."""
        self.endpoints.append(endpoint)
        self.recorded[endpoint] = RecordedEvents(endpoint)

    def close(self) -> None:
        self.network.change = None
        self.network.heal()
        for endpoint in [one for one in self.endpoints if isinstance(one, Client)]:
            endpoint.close()
        for endpoint in self.endpoints:
            endpoint.close()
            if isinstance(endpoint, MessageServer):
                in_use = {name: n for name, n in endpoint.statistics.items() if n and name not in COUNTERS}
                assert not {name: n for name, n in in_use.items() if not name.startswith("refused-")}, in_use
        for runtime in self.runtimes:
            assert runtime.loop.failed is None, f"the event loop logged {runtime.loop.failed!r}"
        wait_for(lambda: not self.threads(), f"the threads {self.threads()} to end")
        connections = {connection for one in self.recorded.values() for _, connection in one.events}
        remains = remains_in(*self.endpoints, *self.runtimes, *connections)
        assert not remains, f"ended endpoints and connections keep {remains}"
        assert not self.network.subscriptions
        assert not self.network.publications


COUNTERS: Final = frozenset({"dropped", "tampered"})


__all__ = [
    "ADDRESS",
    "LINK",
    "NO_LIMITS",
    "TIMEOUT_S",
    "RecordedEvents",
    "SessionLimits",
    "World",
    "flood",
    "kept_for",
    "link",
    "wait_for",
]

"""Servers and clients of the secure endpoint on real media drivers, closed with their test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from aeron_spark import node
from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.endpoint_transport import AeronClientTransport, AeronServerTransport
from aeron_spark.client.client import Client
from aeron_spark.endpoint.access import LogSpace
from aeron_spark.endpoint.client_endpoint import ClientEndpoint
from aeron_spark.endpoint.connection import Connection
from aeron_spark.endpoint.endpoint import Endpoint
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.node.paths import driver_space
from aeron_spark.options import ClientOptions, LiveOptions, ServerOptions
from aeron_spark.protocol.access import PeerStore, ServerName
from aeron_spark.transport.api import ClientTransport, ServerAddress
from aeron_spark.transport.endpoint_channels import ClientPorts
from aeron_spark.waiting import wait_for
from tests.aeron.secure.tap import Tap
from tests.message_server import MessageServer
from tests.nodes import remove_node
from tests.option_groups import options_of
from tests.ports import free_ports

TIMEOUT_S: Final = 60.0  # of waits that take milliseconds on an idle machine
DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {"handshakes_per_second": 0.0, "max_pending_per_address": 0, "allow_any_key": True}
)
USAGE_COUNTS: Final = (
    "connections",
    "sessions",
    "admitted",
    "pending",
    "addresses",
    "session_ids",
    "stream_ids",
    "ports",
)


class RecordedEvents:
    """Records the listener calls of an endpoint, with their times."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.events: list[tuple[str, Connection, float]] = []
        self.errors: list[BaseException] = []
        for name in ("init", "connect", "resume", "disconnect"):
            getattr(endpoint, f"on_{name}")(
                lambda connection, name=name: self.events.append((name, connection, time.monotonic()))
            )
        endpoint.on_error(lambda _, error: self.errors.append(error))

    def count(self, name: str) -> int:
        return sum(1 for event, _, _ in list(self.events) if event == name)

    def first_time(self, name: str) -> float:
        """Return the time of the first event with this name."""
        return next(at for event, _, at in list(self.events) if event == name)


class World:
    """Servers on one driver and clients on another, by default over loopback."""

    def __init__(self, serving: AeronClient, dialling: AeronClient) -> None:
        self.serving, self.dialling = serving, dialling
        self._opened: list[MessageServer | Client] = []

    def free_address(self, host: str = "127.0.0.1") -> ServerAddress:
        return ServerAddress("ipc") if host == "ipc" else ServerAddress("udp", host, *free_ports(host))

    def server(
        self,
        *addresses: ServerAddress,
        store: PeerStore | None = None,
        tap: Tap | None = None,
        echo: bool = True,
        **changes: Any,
    ) -> MessageServer:
        """Start a server that sends each message back; ``tap`` records what it sends."""
        server = self.unstarted(store, tap, **changes)
        if echo:
            server.on_message(object, lambda connection, message: connection.send(message))
        server.start(addresses)
        return server

    def unstarted(self, store: PeerStore | None = None, tap: Tap | None = None, **changes: Any) -> MessageServer:
        """Return a server that does not listen."""
        listen = AeronServerTransport if tap is None else tap.server_transport
        server = MessageServer(
            lambda: listen(self.serving), store or MemoryPeerStore(),
            LiveOptions(options_of(ServerOptions, {**DEFAULTS, **changes})),
            log_space=LogSpace(lambda: driver_space(Path(self.serving.aeron_dir))),
        )  # fmt: skip
        self._opened.append(server)
        return server

    def client(
        self,
        address: ServerAddress,
        *,
        driver: AeronClient | None = None,
        dial: Callable[[], ClientTransport] | None = None,
        store: PeerStore | None = None,
        ports: ClientPorts | None = None,
        tap: Tap | None = None,
        **changes: Any,
    ) -> Client:
        """Return a client that is not connected."""
        on = driver or (self.serving if address.media == "ipc" else self.dialling)
        make = AeronClientTransport if tap is None else tap.client_transport
        dial = dial or (lambda: make(on, address, ports=ports))
        endpoint = ClientEndpoint(
            dial,
            ServerName(address.host, address.data_port),
            store or MemoryPeerStore(),
            options_of(ClientOptions, changes),
        )
        endpoint.open(dial)
        client = Client(endpoint)
        # without closed ones, each of which keeps a megabyte
        self._opened = [*(one for one in self._opened if not one.closed), client]
        return client

    def connected(self, address: ServerAddress, **changes: Any) -> Client:
        client = self.client(address, **changes)
        client.connect(TIMEOUT_S)
        return client

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        for one in reversed(self._opened):
            one.close()


def echoes(client: Client, message: object, seconds: float = TIMEOUT_S) -> bool:
    """Send a message and wait for the server's echo."""
    received: list[object] = []
    client.on_message(object, received.append)
    client.send(message)
    wait_for(lambda: message in received, seconds, f"the echo of {message}")
    return True


def await_nothing_in_use(server: MessageServer, seconds: float = TIMEOUT_S) -> dict[str, int]:
    """Wait until the server uses nothing for clients, and return its statistics."""
    wait_for(
        lambda: not any(server.statistics[name] for name in USAGE_COUNTS),
        seconds,
        "the server to release everything",
        state=lambda: str(server.statistics),
    )
    return server.statistics


def logs(client: AeronClient) -> int:
    """Return the number of the driver's log buffers."""
    return len(list(Path(client.aeron_dir).glob("*/*.logbuffer")))


def memory_of(client: AeronClient) -> int:
    """Return the bytes of /dev/shm that the driver's directory occupies."""
    total = 0
    for path in Path(client.aeron_dir).rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:  # freed meanwhile
            continue
    return total


@contextmanager
def node_of(aeron_dir: Path, **settings: Any) -> Iterator[AeronClient]:
    """Start a node; yield a new Aeron client of its driver; stop the node and remove its directory."""
    try:
        with node.ensure(aeron_dir, **settings) as handle:
            client = AeronClient(handle.aeron_dir)
            try:
                yield client
            finally:
                client.close()
    finally:
        remove_node(aeron_dir)

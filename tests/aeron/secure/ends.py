"""Servers and clients of the secure endpoint on real media drivers, closed with their test."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from aeron_spark import node
from aeron_spark.aeron.client import Client as AeronClient
from aeron_spark.aeron.endpoint_transport import AeronClientTransport, AeronServerTransport
from aeron_spark.client.client import Client
from aeron_spark.client.settings import ClientSettings
from aeron_spark.connection.connection import Connection
from aeron_spark.connection.endpoint import Endpoint
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol.access import PeerStore, ServerName
from aeron_spark.protocol.limits import Limits
from aeron_spark.server.server import TransportServer
from aeron_spark.server.settings import ServerSettings
from aeron_spark.transport.api import ChannelPair, ClientTransport, ServerAddress
from aeron_spark.transport.endpoint_channels import ClientPorts
from aeron_spark.waiting import wait_for
from tests.aeron.endpoint.drivers import free_ports
from tests.aeron.secure.tapped import Tap

PATIENCE: Final = 60.0  # seconds for what takes milliseconds on an idle machine
FREE: Final = Limits(handshakes_per_second=0, pending_per_address=0)
OPEN: Final = ServerSettings(limits=FREE)
NOTHING_HELD: Final = (
    "connections",
    "sessions",
    "places",
    "pending",
    "addresses",
    "session_ids",
    "stream_ids",
    "ports",
)


class Heard:
    """What the listeners of an endpoint were told, with the times."""

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

    def when(self, name: str) -> float:
        """The time of the first one."""
        return next(at for event, _, at in list(self.events) if event == name)


class CountingDialing(AeronClientTransport):
    """Counts the attempts that a client makes."""

    attempts = 0

    def open_path(self) -> ChannelPair:
        self.attempts += 1
        return super().open_path()


class World:
    """Servers on one driver, clients on another; ``host`` of every place is loopback unless given."""

    def __init__(self, serving: AeronClient, dialling: AeronClient) -> None:
        self.serving, self.dialling = serving, dialling
        self._opened: list[TransportServer | Client] = []

    def place(self, host: str = "127.0.0.1") -> ServerAddress:
        """A place nobody listens at."""
        return ServerAddress("ipc") if host == "ipc" else ServerAddress("udp", host, *free_ports(host))

    def server(
        self,
        *places: ServerAddress,
        settings: ServerSettings = OPEN,
        store: PeerStore | None = None,
        tap: Tap | None = None,
        echo: bool = True,
        **changes: Any,
    ) -> TransportServer:
        """A server that echoes what it is sent, and says what it says into ``tap``."""
        server = self.unstarted(settings, store, tap, **changes)
        if echo:
            server.on_message(object, lambda connection, message: connection.send(message))
        server.start(places)
        return server

    def unstarted(
        self, settings: ServerSettings = OPEN, store: PeerStore | None = None, tap: Tap | None = None, **changes: Any
    ) -> TransportServer:
        """A server that does not listen yet."""
        listen = AeronServerTransport if tap is None else tap.listening
        server = TransportServer(lambda: listen(self.serving), store or MemoryPeerStore(), replace(settings, **changes))
        self._opened.append(server)
        return server

    def client(
        self,
        place: ServerAddress,
        *,
        driver: AeronClient | None = None,
        dial: Callable[[], ClientTransport] | None = None,
        store: PeerStore | None = None,
        ports: ClientPorts | None = None,
        tap: Tap | None = None,
        **changes: Any,
    ) -> Client:
        """A client that is not connected yet."""
        on = driver or (self.serving if place.media == "ipc" else self.dialling)
        make = AeronClientTransport if tap is None else tap.dialing
        client = Client(
            dial or (lambda: make(on, place, ports=ports)),
            ServerName(place.host, place.data_port),
            store or MemoryPeerStore(),
            replace(ClientSettings(), **changes),
            is_ipc=place.media == "ipc",
        )
        # without those that were closed: each holds a megabyte
        self._opened = [*(one for one in self._opened if not one.closed), client]
        return client

    def connected(self, place: ServerAddress, **changes: Any) -> Client:
        """A client that is connected."""
        client = self.client(place, **changes)
        client.connect(PATIENCE)
        return client

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        for one in reversed(self._opened):
            one.close()


def echoes(client: Client, message: object, seconds: float = PATIENCE) -> bool:
    """Whether the server's echo of a message comes back."""
    got: list[object] = []
    client.on_message(object, got.append)
    client.send(message)
    wait_for(lambda: message in got, seconds, f"the echo of {message}")
    return True


def nothing_held(server: TransportServer, seconds: float = PATIENCE) -> dict[str, int]:
    """Wait until the server holds nothing for anybody, and return its statistics."""
    wait_for(
        lambda: not any(server.statistics[name] for name in NOTHING_HELD),
        seconds,
        "the server to hold nothing",
        state=lambda: str(server.statistics),
    )
    return server.statistics


def logs(client: AeronClient) -> int:
    """How many log buffers the driver holds."""
    return len(list(Path(client.aeron_dir).glob("*/*.logbuffer")))


def memory_of(client: AeronClient) -> int:
    """Bytes of /dev/shm that the driver's directory really takes."""
    total = 0
    for path in Path(client.aeron_dir).rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:  # freed meanwhile
            continue
    return total


@contextmanager
def node_of(aeron_dir: Path, **asked: Any) -> Iterator[AeronClient]:
    """A node of this project, and this process's own client of its driver; stopped and removed afterwards."""
    try:
        with node.ensure(aeron_dir, **asked) as handle:
            client = AeronClient(handle.aeron_dir)
            try:
                yield client
            finally:
                client.close()
    finally:
        node.stop(aeron_dir, force=True, timeout=20)
        shutil.rmtree(aeron_dir, ignore_errors=True)

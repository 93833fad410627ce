"""A server with named streams on a node, and a client of it, for all tests of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aeron_spark.client.client import Client
from aeron_spark.node import NodeHandle
from aeron_spark.server.server import Server
from aeron_spark.stream_client.session import StreamSession
from tests import server_processes
from tests.ports import free_ports

Connect = Callable[..., Client]


@pytest.fixture(scope="module")
def server(node: NodeHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    data, control = free_ports()
    with Server(
        f"127.0.0.1:{data}:{control}", aeron_dir=node.aeron_dir, identity=str(folder / "server.key"),
        handshakes_per_second=0, allow_any_key=True, streams_dir=str(folder / "streams"),
    ) as one:  # fmt: skip
        _ = one.streams  # opens the store now, so that its thread starts in this fixture and not in a test
        yield one


@pytest.fixture(scope="module")
def connect(server: Server, node: NodeHandle) -> Iterator[Connect]:
    """Return a function that connects a client to the server, by default over UDP."""
    opened: list[Client] = []

    def one(**options: Any) -> Client:
        opened.append(server_processes.connect(server.addresses[0], node.aeron_dir, **options))
        return opened[-1]

    yield one
    for client in opened:
        client.close()


@pytest.fixture(scope="module")
def session(connect: Connect) -> Iterator[StreamSession]:
    made = StreamSession(connect(), 20.0)
    yield made
    made.close()

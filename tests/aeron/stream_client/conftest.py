"""A server with named streams on a node, and a client of it, for all tests of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from aeron_spark.client.client import Client
from aeron_spark.node import NodeHandle
from aeron_spark.server.server import Server
from aeron_spark.stream_client.session import StreamSession
from tests.server_processes import connections, serving

Connect = Callable[..., Client]


@pytest.fixture(scope="module")
def server(node: NodeHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(node, tmp_path_factory.mktemp("server"), handshakes_per_second=0) as one:
        yield one


@pytest.fixture(scope="module")
def connect(server: Server, node: NodeHandle) -> Iterator[Connect]:
    """Return a function that connects a client to the server, by default over UDP."""
    with connections(server.addresses[0], node.aeron_dir) as one:
        yield one


@pytest.fixture(scope="module")
def session(connect: Connect) -> Iterator[StreamSession]:
    made = StreamSession(connect(), 20.0)
    yield made
    made.close()

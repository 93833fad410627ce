"""Servers and clients on one node choose shared memory or UDP by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import aeron_spark
from aeron_spark.aeron.driver import ports_of_server
from aeron_spark.client.client import Client
from aeron_spark.keys.key_files import network_server
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.node import NodeHandle
from aeron_spark.server.server import Server
from aeron_spark.waiting import wait_for
from tests.aeron.secure.endpoints import TIMEOUT_S
from tests.aeron.streams import own_node
from tests.ports import free_address

Start = Callable[[], Server]


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    with own_node(run_name) as handle:
        yield handle


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Closes, at the end, what a test has entered."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def servers(node: NodeHandle, tmp_path: Path, opened: ExitStack) -> tuple[Start, Start]:
    """Return two functions that start two servers, each with its ports, key and streams."""

    def prepare(name: str) -> Start:
        address, store, streams = free_address(), MemoryPeerStore(), str(tmp_path / name)

        def start() -> Server:
            return opened.enter_context(
                Server(
                    address, store=store, aeron_dir=node.aeron_dir, streams_dir=streams,
                    allow_any_key=True, handshakes_per_second=0,
                )
            )  # fmt: skip

        return start

    return prepare("first"), prepare("second")


def connect(server: Server, node: NodeHandle, opened: ExitStack) -> tuple[Client, MemoryPeerStore]:
    store = MemoryPeerStore()
    client = aeron_spark.connect(server.addresses[0], store=store, aeron_dir=node.aeron_dir, longest_pause="200ms")
    return opened.enter_context(client), store


def test_the_first_server_of_a_node_shares_its_memory_and_the_second_uses_udp(
    node: NodeHandle, servers: tuple[Start, Start], opened: ExitStack
) -> None:
    first, second = (start() for start in servers)
    assert (len(first.addresses), len(second.addresses)) == (2, 1)
    assert first.addresses[1] == "ipc:"
    for server, is_ipc in ((first, True), (second, False)):
        client, store = connect(server, node, opened)
        assert client.connection.is_ipc is is_ipc
        assert client.ping() > 0
        client.close()  # after this, the key is stored
        host, port, _ = server.addresses[0].split(":")
        assert store.servers() == {network_server(host, int(port)): server.public_key}


def test_clients_change_to_udp_and_to_shared_memory_when_their_servers_do(
    node: NodeHandle, servers: tuple[Start, Start], opened: ExitStack
) -> None:
    """After a restart in the other order, the second server has the shared memory."""
    running = [start() for start in servers]
    clients = [connect(server, node, opened)[0] for server in running]
    assert [client.connection.is_ipc for client in clients] == [True, False]
    for server in running:
        server.drain(0)  # asks the clients to connect again
        server.close()
    wait_for(lambda: ports_of_server(node.aeron_dir) is None, TIMEOUT_S, "the servers to leave the shared memory")
    second = servers[1]()
    first = servers[0]()
    assert (len(first.addresses), len(second.addresses)) == (1, 2)

    for client in clients:
        client.connect(TIMEOUT_S)
        client.reconnect(TIMEOUT_S)  # an attempt that began before its server ran ends on UDP
    assert [client.connection.is_ipc for client in clients] == [False, True]
    for client, server in zip(clients, (first, second), strict=True):
        assert client.connection.key == server.public_key
        assert client.ping() > 0

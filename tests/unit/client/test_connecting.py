"""Connecting: deadlines, refusals, keys, and errors that end the attempts."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from aeron_spark import process
from aeron_spark.client.client import Client
from aeron_spark.endpoint.client_states import ClientState
from aeron_spark.endpoint.connection import Connection
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    DataFormatError,
    EndedError,
    ServerKeyChanged,
    TamperedError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.keys.stores import FilePeerStore, KeyPaths, MemoryPeerStore
from aeron_spark.process import FreePages
from aeron_spark.protocol.access import ServerName
from aeron_spark.protocol.handshake_packets import RefusalHint, encode_hint
from aeron_spark.protocol.keypair import keypair_from
from aeron_spark.protocol.sources import Refusal
from aeron_spark.transport.api import ChannelPair, PublicationRejected, ServerAddress
from tests.ending import LONG_TIMEOUT_S, call_in_time
from tests.memory_transport import MemoryClientTransport, MemoryNetwork, MemoryPublication
from tests.unit.endpoint.endpoints import ADDRESS, TIMEOUT_S, World, client_options, result_of, wait_for


def test_row_01_connect_returns_after_the_first_frames_were_exchanged(world: World) -> None:
    server, client = world.pair()
    assert client.connected
    (server_connection,) = server.connections
    assert server_connection.id == client.connection.id
    assert server_connection.label == client.connection.label
    assert server_connection.tag == "desk-7"
    assert client.connection.key == server.public_key == client.server_key
    assert list(server) == [server_connection]


def test_row_11_connect_raises_at_its_timeout(world: World) -> None:
    client = world.client(connect=False)
    started = world.clock()
    with pytest.raises(WaitTimeout, match=r"10\.0\.0\.1:20121"):
        client.connect(0.3)
    assert 0.25 < world.clock() - started < 5
    world.server()
    client.connect(10)


@pytest.mark.threads
def test_a_connect_outlasts_that_of_another_thread_with_a_shorter_timeout(world: World) -> None:
    client = world.client(connect=False)
    with ThreadPoolExecutor(2) as pool:
        short = pool.submit(client.connect, 0.2)
        wait_for(lambda: client._endpoint.is_connect_pending)
        long = pool.submit(client.connect, TIMEOUT_S)
        assert isinstance(short.exception(TIMEOUT_S), WaitTimeout)
        world.server()
        assert long.result(TIMEOUT_S).connected


def test_the_event_loop_is_idle_while_it_waits_for_the_server(world: World) -> None:
    """Many clients that wait for an overloaded server must leave it the processor."""
    client = world.client(client_options(setup_timeout=60.0), connect=False)
    connecting = client.begin_connecting()
    wait_for(lambda: client._endpoint.state is ClientState.HANDSHAKING)
    wait_for(client._endpoint.loop.is_idle, "the client to be idle")
    world.server()
    assert result_of(connecting).connected


@pytest.mark.threads
def test_row_12_timeout_0_tries_until_closed(world: World) -> None:
    client = world.client(client_options(first_pause=0.01), connect=False)
    raised: list[BaseException] = []

    def connect() -> None:
        try:
            client.connect(0)
        except AeronSparkError as error:
            raised.append(error)

    waiting = threading.Thread(target=connect)
    waiting.start()
    wait_for(lambda: client._endpoint.is_connect_pending)
    client.close()
    waiting.join(TIMEOUT_S)
    assert isinstance(raised[0], UsageError)


@pytest.mark.threads
def test_a_connect_that_the_event_loop_does_not_reach_before_the_client_is_closed_fails(world: World) -> None:
    client = world.client(connect=False)
    loop_is_blocked = threading.Event()

    def block_until_the_loop_stops() -> None:
        loop_is_blocked.set()
        client._endpoint.loop._stopping.wait(TIMEOUT_S)

    client._endpoint.loop.run_soon(block_until_the_loop_stops)
    client._endpoint.loop.start()
    assert loop_is_blocked.wait(TIMEOUT_S)
    connected = client.begin_connecting()
    client.close()
    with pytest.raises(EndedError, match="the client is closed"):
        connected.result(0)


@pytest.mark.threads
def test_row_12_timeout_0_connects_to_a_server_that_starts_later(world: World) -> None:
    client = world.client(client_options(first_pause=0.01), connect=False)
    waiting = threading.Thread(target=lambda: client.connect(0))
    waiting.start()
    wait_for(lambda: client._endpoint.is_connect_pending)
    world.server()
    waiting.join(20)
    assert client.connected


def test_row_79_close_before_connecting_is_quick(world: World) -> None:
    before = world.client(connect=False)
    call_in_time(before.close, "closing a client that never connected")
    unstarted = world.server(start=False)
    call_in_time(unstarted.close, "closing a server that never started")
    with pytest.raises(UsageError):
        unstarted.start([ADDRESS])


def test_row_36_a_packet_with_a_flipped_bit_is_an_authentication_error_and_not_a_timeout(world: World) -> None:
    server = world.server()

    def flip(publication: object, message: bytes) -> tuple[bytes]:
        if publication.inbox is server.endpoint.transport.inbox and message[:2] == b"AS" and message[3] == 2:  # type: ignore[attr-defined]
            return (message[:-5] + bytes([message[-5] ^ 4]) + message[-4:],)
        return (message,)

    world.network.change = flip
    client = world.client(connect=False)
    with pytest.raises(TamperedError):
        client.connect(LONG_TIMEOUT_S)


def test_row_41_the_first_use_stores_the_key_and_a_changed_key_is_refused(world: World, tmp_path: Path) -> None:
    paths = KeyPaths.below(tmp_path)
    store = FilePeerStore(paths)
    first = world.server(store=MemoryPeerStore(keypair_from(b"1" * 32)))
    client = world.client(store=store)
    wait_for(lambda: store.servers())
    before = paths.known_servers.read_bytes()
    client.close()
    first.close()
    world.server(store=MemoryPeerStore(keypair_from(b"2" * 32)))
    again = world.client(store=store, connect=False)
    with pytest.raises(ServerKeyChanged):
        again.connect(10)
    assert paths.known_servers.read_bytes() == before


def test_row_43_two_servers_of_one_host_do_not_collide_in_the_store(world: World) -> None:
    other = ServerAddress("udp", "10.0.0.1", 20131, 20132)
    world.server()
    world.server(addresses=[other])
    store = MemoryPeerStore()
    world.client(store=store)
    world.client(store=store, address=other, source="192.0.2.7:4001")
    wait_for(lambda: len(store.servers()) == 2)
    assert len(set(store.servers().values())) == 2


def hellos_and_publications(world: World, client: Client, refuse: str = "") -> list[str]:
    """Connect; return the order of HELLOs and further publications. ``refuse`` is a hint that rejects the first one.

    The server gets the first HELLO only after the rejection was sent, so that its cookie comes later.
    """
    order: list[str] = []
    held: list[tuple[MemoryPublication, bytes]] = []
    transport = client._endpoint.transport
    reopen_path = transport.reopen_path

    def open_subscription(pair: ChannelPair) -> ChannelPair:
        order.append("publication")
        opened = reopen_path(pair)
        if refuse and order.count("publication") == 1:
            way = next(one for one in world.network.subscriptions if one.token == opened.token)
            with world.network.lock:
                world.network._send(way, PublicationRejected(opened.token, opened.publication.session_id, refuse))
            held[0][0].offer(held[0][1])
        return opened

    def record(publication: MemoryPublication, message: bytes) -> tuple[bytes, ...]:
        if message[:2] == b"AS" and message[3] == 1 and (publication, message) not in held:
            order.append("HELLO")
            if refuse and not held:
                held.append((publication, message))
                return ()
        return (message,)

    transport.reopen_path = open_subscription  # type: ignore[method-assign]
    world.network.change = record
    client.connect(10)
    return order


def test_the_publication_for_the_cookie_opens_while_the_first_hello_is_under_way(world: World) -> None:
    server = world.server()
    assert hellos_and_publications(world, world.client(connect=False)) == ["HELLO", "publication", "HELLO"]
    wait_for(lambda: server.statistics["handshakes"] == 0, "the handshakes to end")


def test_a_publication_that_was_rejected_before_the_cookie_arrived_is_opened_again(world: World) -> None:
    world.server()
    hint = encode_hint(RefusalHint(Refusal("rate", "not now")))
    assert hellos_and_publications(world, world.client(connect=False), hint) == [
        "HELLO",
        "publication",
        "publication",
        "HELLO",
    ]


def test_an_unused_publication_is_closed_with_its_attempt(world: World) -> None:
    world.server()
    client = world.client(connect=False)
    transport, opened = client._endpoint.transport, []
    reopen_path = transport.reopen_path

    def open_subscription(pair: ChannelPair) -> ChannelPair:
        opened.append(reopen_path(pair))
        return opened[-1]

    transport.reopen_path = open_subscription  # type: ignore[method-assign]
    world.network.change = lambda publication, message: () if message[:2] == b"AS" and message[3] == 1 else (message,)
    with pytest.raises(WaitTimeout):
        client.connect(0.3)
    assert opened
    wait_for(lambda: all(one.publication.closed for one in opened), "the publications to be closed")


@pytest.mark.threads
def test_concurrent_connects_return_the_same_connection(world: World) -> None:
    server = world.server()
    client = world.client(connect=False)
    found: list[Connection] = []
    several = [threading.Thread(target=lambda: found.append(client.connect(10))) for _ in range(8)]
    for one in several:
        one.start()
    for one in several:
        one.join(20)
    assert found == [client.connection] * 8
    assert client.connect(1) is client.connection
    assert server.statistics["connections"] == 1


def test_a_lost_open_ends_the_attempt_at_the_set_up_timeout(world: World) -> None:
    """The link is connected, but the server's first frame does not arrive."""
    server = world.server()
    lost = [1]

    def lose(publication: object, message: bytes) -> tuple[bytes, ...]:
        if publication.key[0] == "out" and lost[0]:  # type: ignore[attr-defined]
            lost[0] -= 1
            return ()
        return (message,)

    world.network.change = lose
    client = world.client(client_options(setup_timeout=0.3, first_pause=0.01), connect=False)
    client.connect(10)
    recorded = world.recorded[client]
    wait_for(lambda: "connect" in recorded.names)
    client.ping()
    assert "disconnect" not in recorded.names
    assert not recorded.errors
    wait_for(lambda: server.statistics["sessions"] == 1)


class Broken(Connection):
    def __init__(self, *arguments: object) -> None:
        raise ValueError("cannot make a connection")


def test_connect_raises_the_error_of_a_connection_class(world: World) -> None:
    world.server()
    client = world.client(connection_class=Broken, connect=False)
    with pytest.raises(UsageError, match="cannot make a connection"):
        client.connect(10)


@pytest.mark.parametrize("error", [OSError("the disk is gone"), DataFormatError("line 1 is wrong")])
def test_connect_raises_the_error_of_a_key_store_at_the_first_look_up(world: World, error: Exception) -> None:
    """Regression: the client repeated the look-up until its timeout."""
    lookups = []

    class FailingStore(MemoryPeerStore):
        def server_key(self, server: object) -> bytes | None:
            lookups.append(server)
            raise error

    world.server()
    client = world.client(store=FailingStore(), connect=False)
    with pytest.raises(AeronSparkError, match=str(error)):
        client.connect(TIMEOUT_S)
    assert (len(lookups), client.state) == (1, "stopped")


@pytest.mark.threads
def test_a_closed_client_has_stored_the_key_of_its_server(world: World) -> None:
    """A program may read the file of known servers, or remove its folder, when the client is closed."""
    stored = threading.Event()

    class SlowStore(MemoryPeerStore):
        def trust(self, server: ServerName, key: bytes) -> None:
            client._endpoint.wait_closed(TIMEOUT_S)
            time.sleep(0.2)
            super().trust(server, key)
            stored.set()

    world.server()
    client = world.client(store=SlowStore(), connect=False)
    client.connect(TIMEOUT_S)
    client.close()
    assert stored.is_set()


@pytest.mark.threads
def test_a_slow_key_store_does_not_block_the_event_loop(world: World) -> None:
    released = threading.Event()

    class SlowStore(MemoryPeerStore):
        def server_key(self, server: object) -> bytes | None:
            released.wait(10)
            return None

    world.server()
    client = world.client(store=SlowStore(), connect=False)
    with pytest.raises(WaitTimeout):
        client.connect(0.2)
    released.set()
    client.connect(10)


class LeavesSharedMemory(MemoryClientTransport):
    """Uses shared memory for its first path, and UDP for all others."""

    def __init__(self, network: MemoryNetwork) -> None:
        super().__init__(network, ServerAddress("ipc"))
        self._paths = 0

    def open_path(self) -> ChannelPair:
        self._paths += 1
        if self._paths > 1:
            self.address, self.source = ADDRESS, "192.0.2.7:4000"
        return super().open_path()


def test_a_session_that_is_resumed_over_another_path_has_its_address(world: World) -> None:
    server = world.server(addresses=[ADDRESS, ServerAddress("ipc")])
    client = world.client(dial=lambda: LeavesSharedMemory(world.network))
    connection, [session] = client.connection, server.sessions
    assert (connection.is_ipc, connection.remote_port, session.peer.is_ipc) == (True, 0, True)
    client.reconnect(10)
    assert client.connection is connection  # the same session
    assert (connection.is_ipc, connection.remote_port) == (False, ADDRESS.data_port)
    assert (session.peer.is_ipc, session.peer.address) == (False, "192.0.2.7")


def test_an_optional_address_of_another_server_is_left_out(world: World) -> None:
    ipc, second = ServerAddress("ipc"), ServerAddress("udp", "192.0.2.9", 20121, 20122)
    first, other = world.server(start=False), world.server(start=False)
    first.start([ADDRESS], [ipc])
    other.start([second], [ipc])
    assert (first.addresses, other.addresses) == ((ADDRESS, ipc), (second,))
    assert world.client(address=second).connection.remote_port == second.data_port


def test_a_client_connects_and_reconnects_over_shared_memory(world: World) -> None:
    ipc = ServerAddress("ipc")
    server = world.server(addresses=[ADDRESS, ipc])
    client = world.client(address=ipc)
    wait_for(lambda: server.connections)
    (server_connection,) = server.connections
    assert server_connection.is_ipc
    assert client.connection.is_ipc
    assert (server_connection.remote_address, server_connection.remote_port, client.connection.remote_port) == (
        "",
        0,
        0,
    )
    client.reconnect(10)
    client.ping()


def test_send_without_a_connection_raises_connect_error(world: World) -> None:
    client = world.client(connect=False)
    with pytest.raises(ConnectError, match="no connection"):
        client.send(1)


def test_connect_raises_usage_error_if_its_future_is_cancelled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = world.client(connect=False)
    connecting = client.begin_connecting()  # the server has not started

    def cancelled_meanwhile(*arguments: Any, **keywords: Any) -> object:
        connecting.cancel()
        return wait(*arguments, **keywords)

    loop = client._endpoint.loop
    wait = loop.wait
    monkeypatch.setattr(loop, "wait", cancelled_meanwhile)
    with pytest.raises(UsageError, match=r"a connection with 10\.0\.0\.1:20121 was cancelled"):
        client.connect(TIMEOUT_S)
    monkeypatch.undo()
    world.server()
    assert client.connect(TIMEOUT_S).connected


def test_a_process_that_closes_clients_returns_free_memory_now_and_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: its heap grew by 36 kB for each connect and close, although nothing was in use."""
    now, returned = [0.0], list[float]()
    monkeypatch.setattr("aeron_spark.client.client._FREE_PAGES", FreePages(lambda: now[0]))
    monkeypatch.setattr(process, "return_free_pages", lambda: returned.append(now[0]))
    for at in (0.0, 59.0, 61.0, 62.0, 121.5):
        now[0] = at
        world.client(connect=False).close()
    assert returned == [61.0, 121.5]

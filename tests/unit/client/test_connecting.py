"""Connecting: deadlines, refusals, keys, and every way to give up."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from aeron_spark.client.client import Client
from aeron_spark.client.settings import ClientSettings
from aeron_spark.connection.connection import Connection
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    EndedError,
    ServerKeyChanged,
    TamperedError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.keys.stores import FilePeerStore, KeyPaths, MemoryPeerStore
from aeron_spark.protocol.keypair import keypair_from
from aeron_spark.protocol.refusals import Refusal
from aeron_spark.protocol.retry_cookies import RefusalHint, encode_hint
from aeron_spark.transport.api import ChannelPair, PublicationRejected, ServerAddress
from aeron_spark.transport.memory import MemoryPublication
from aeron_spark.waiting import result_within
from tests.ending import FOR_EVER, ends
from tests.unit.connection.ends import LINK, PATIENCE, PLACE, World, link, wait_for


def test_row_01_a_connection_is_there_once_the_first_frames_crossed(world: World) -> None:
    server, client = world.pair()
    assert client.connected
    (there,) = server.connections
    assert there.id == client.connection.id
    assert there.label == client.connection.label
    assert there.tag == "desk-7"
    assert client.connection.key == server.public_key == client.server_key
    assert list(server) == [there]


def test_row_11_the_time_for_connecting_is_kept(world: World) -> None:
    client = world.client(connect=False)
    begun = time.monotonic()
    with pytest.raises(WaitTimeout, match=r"10\.0\.0\.1:20121"):
        client.connect(0.3)
    assert 0.25 < time.monotonic() - begun < 5
    world.server()
    client.connect(10)


def test_row_12_timeout_0_tries_until_closed(world: World) -> None:
    client = world.client(ClientSettings(link=link(times=LINK.times), first_pause=0.01), connect=False)
    raised: list[BaseException] = []

    def connect() -> None:
        try:
            client.connect(0)
        except AeronSparkError as error:
            raised.append(error)

    waiting = threading.Thread(target=connect)
    waiting.start()
    wait_for(lambda: client._runner.machine.is_connect_pending)
    client.close()
    waiting.join(PATIENCE)
    assert isinstance(raised[0], UsageError)


def test_a_connect_that_the_event_loop_does_not_reach_before_the_client_is_closed_fails(world: World) -> None:
    client = world.client(connect=False)
    loop_is_blocked = threading.Event()

    def block_until_the_loop_stops() -> None:
        loop_is_blocked.set()
        client._runtime.loop._stopping.wait(PATIENCE)

    client._runtime.run_on_loop(block_until_the_loop_stops)
    client._runtime.loop.start()
    assert loop_is_blocked.wait(PATIENCE)
    connected = client.begin_connecting()
    client.close()
    with pytest.raises(EndedError, match="the client is closed"):
        connected.result(0)


def test_row_12_timeout_0_finds_a_server_that_comes_later(world: World) -> None:
    client = world.client(ClientSettings(link=LINK, first_pause=0.01), connect=False)
    waiting = threading.Thread(target=lambda: client.connect(0))
    waiting.start()
    wait_for(lambda: client._runner.machine.is_connect_pending)
    world.server()
    waiting.join(20)
    assert client.connected


def test_row_79_closing_while_connecting_and_before_is_quick(world: World) -> None:
    before = world.client(connect=False)
    ends(before.close, "closing a client that never connected")
    unstarted = world.server(start=False)
    ends(unstarted.close, "closing a server that never started")
    with pytest.raises(UsageError):
        unstarted.start([PLACE])


def test_row_36_an_answer_with_a_flipped_bit_is_an_authentication_error_and_no_timeout(world: World) -> None:
    server = world.server()

    def flip(publication: object, message: bytes) -> tuple[bytes]:
        if publication.inbox is server._runner.transport.inbox and message[:2] == b"AS" and message[3] == 2:  # type: ignore[attr-defined]
            return (message[:-5] + bytes([message[-5] ^ 4]) + message[-4:],)
        return (message,)

    world.network.change = flip
    client = world.client(connect=False)
    with pytest.raises(TamperedError):
        ends(lambda: client.connect(FOR_EVER), "connecting")


def test_row_41_the_first_use_stores_the_key_and_a_changed_one_is_refused(world: World, tmp_path: Path) -> None:
    places = KeyPaths.below(tmp_path)
    store = FilePeerStore(places)
    first = world.server(store=MemoryPeerStore(keypair_from(b"1" * 32)))
    client = world.client(store=store)
    wait_for(lambda: store.servers())
    before = places.known_servers.read_bytes()
    client.close()
    first.close()
    world.server(store=MemoryPeerStore(keypair_from(b"2" * 32)))
    again = world.client(store=store, connect=False)
    with pytest.raises(ServerKeyChanged):
        again.connect(10)
    assert places.known_servers.read_bytes() == before


def test_row_43_two_servers_of_one_host_do_not_collide_in_the_store(world: World) -> None:
    other = ServerAddress("udp", "10.0.0.1", 20131, 20132)
    world.server()
    world.server(places=[other])
    store = MemoryPeerStore()
    world.client(store=store)
    world.client(store=store, place=other, source="192.0.2.7:4001")
    wait_for(lambda: len(store.servers()) == 2)
    assert len(set(store.servers().values())) == 2


def hellos_and_ways(world: World, client: Client, refuse: str = "") -> list[str]:
    """Connect: in which order HELLOs were sent and further ways opened, the first of which may be refused."""
    order: list[str] = []
    dialing = client._runner.transport
    reopen_path = dialing.reopen_path

    def open_subscription(pair: ChannelPair) -> ChannelPair:
        order.append("way")
        opened = reopen_path(pair)
        if refuse and order.count("way") == 1:
            way = next(one for one in world.network.subscriptions if one.token == opened.token)
            with world.network.lock:
                world.network._send(way, PublicationRejected(opened.token, opened.publication.session_id, refuse))
        return opened

    def overhear(publication: MemoryPublication, message: bytes) -> tuple[bytes]:
        if message[:2] == b"AS" and message[3] == 1:
            order.append("HELLO")
        return (message,)

    dialing.reopen_path = open_subscription  # type: ignore[method-assign]
    world.network.change = overhear
    client.connect(10)
    return order


def test_the_way_for_the_cookie_opens_while_the_first_hello_is_under_way(world: World) -> None:
    server = world.server()
    assert hellos_and_ways(world, world.client(connect=False)) == ["HELLO", "way", "HELLO"]
    wait_for(lambda: server.statistics["handshakes"] == 0, "both ways to be given back")


def test_a_way_that_was_refused_before_the_cookie_came_is_opened_again(world: World) -> None:
    world.server()
    hint = encode_hint(RefusalHint(Refusal("rate", "not now")))
    assert hellos_and_ways(world, world.client(connect=False), hint) == ["HELLO", "way", "way", "HELLO"]


def test_a_way_that_was_not_needed_is_closed_with_its_attempt(world: World) -> None:
    world.server()
    client = world.client(connect=False)
    dialing, opened = client._runner.transport, []
    reopen_path = dialing.reopen_path

    def open_subscription(pair: ChannelPair) -> ChannelPair:
        opened.append(reopen_path(pair))
        return opened[-1]

    dialing.reopen_path = open_subscription  # type: ignore[method-assign]
    world.network.change = lambda publication, message: () if message[:2] == b"AS" and message[3] == 1 else (message,)
    with pytest.raises(WaitTimeout):
        client.connect(0.3)
    assert opened
    wait_for(lambda: all(one.publication.closed for one in opened), "the way to be closed")


def test_connecting_twice_is_connecting_once(world: World) -> None:
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


def test_an_open_that_is_lost_is_not_waited_for_without_end(world: World) -> None:
    """The duologue is there, and the server's first frame never comes."""
    server = world.server()
    lost = [1]

    def lose(publication: object, message: bytes) -> tuple[bytes, ...]:
        if publication.key[0] == "out" and lost[0]:  # type: ignore[attr-defined]
            lost[0] -= 1
            return ()
        return (message,)

    world.network.change = lose
    quick = link(
        times=LINK.times.__class__(setup_seconds=0.3, expiry_seconds=0.3, linger_seconds=0.1, retention_seconds=60)
    )
    client = world.client(ClientSettings(link=quick, first_pause=0.01), connect=False)
    client.connect(10)
    heard = world.heard[client]
    wait_for(lambda: "connect" in heard.names)
    client.ping()
    assert "disconnect" not in heard.names
    assert not heard.errors
    wait_for(lambda: server.statistics["sessions"] == 1)


class Broken(Connection):
    def __init__(self, *given: object) -> None:
        raise ValueError("no connection today")


def test_a_connection_class_that_raises_is_an_error_and_no_hang(world: World) -> None:
    world.server()
    client = world.client(connection_class=Broken, connect=False)
    with pytest.raises(UsageError, match="no connection today"):
        client.connect(10)


def test_a_store_that_raises_is_an_error_and_no_hang(world: World) -> None:
    class Odd(MemoryPeerStore):
        def server_key(self, server: object) -> bytes | None:
            raise OSError("the disk is gone")

    world.server()
    client = world.client(store=Odd(), connect=False)
    with pytest.raises(AeronSparkError, match="disk is gone"):
        client.connect(0.3)


def test_a_slow_store_does_not_hold_up_the_polling_thread(world: World) -> None:
    go = threading.Event()

    class Slow(MemoryPeerStore):
        def server_key(self, server: object) -> bytes | None:
            go.wait(10)
            return None

    world.server()
    client = world.client(store=Slow(), connect=False)
    with pytest.raises(WaitTimeout):
        client.connect(0.2)
    go.set()
    client.connect(10)


def test_over_shared_memory_it_is_the_same(world: World) -> None:
    ipc = ServerAddress("ipc")
    server = world.server(places=[PLACE, ipc])
    client = world.client(place=ipc)
    wait_for(lambda: server.connections)
    (there,) = server.connections
    assert there.is_ipc
    assert client.connection.is_ipc
    assert (there.remote_address, there.remote_port, client.connection.remote_port) == ("", 0, 0)
    client.reconnect(10)
    client.ping()


def test_nobody_there_is_said_by_what_needs_a_connection(world: World) -> None:
    client = world.client(connect=False)
    with pytest.raises(ConnectError, match="no connection"):
        client.send(1)


def test_finding_c10_connect_beside_a_future_that_is_cancelled_raises_an_error_of_this_package(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = world.client(connect=False)
    connecting = client.begin_connecting()  # there is no server yet

    def cancelled_meanwhile(*given: Any, **more: Any) -> object:
        connecting.cancel()
        return result_within(*given, **more)

    monkeypatch.setattr("aeron_spark.client.client.result_within", cancelled_meanwhile)
    with pytest.raises(UsageError, match=r"a connection with 10\.0\.0\.1:20121 was cancelled"):
        client.connect(PATIENCE)
    monkeypatch.undo()
    world.server()
    assert client.connect(PATIENCE).connected

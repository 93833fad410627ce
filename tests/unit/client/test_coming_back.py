"""Outages, resumes, restarts, tampering: what arrives, and what the listeners are told."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace

import pytest

from aeron_spark.client.settings import ClientSettings
from aeron_spark.connection.connection import Connection
from aeron_spark.errors import AeronSparkError, SessionLost, UsageError, WaitTimeout
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol.keypair import keypair_from
from aeron_spark.server.settings import ServerSettings
from aeron_spark.transport.memory import MemoryClientTransport
from tests.unit.connection.ends import FREE, LINK, PLACE, World, flood, kept_for, wait_for


def test_row_52_a_short_outage_is_no_disconnect(world: World) -> None:
    server, client = world.pair(times=replace(LINK.times, expiry_seconds=5.0))
    got: list[object] = []
    server.on_message(int, lambda c, m: got.append(m))
    client.send(1)
    world.network.cut()
    client.send(2)
    wait_for(lambda: not client.connected)
    world.network.heal()
    client.send(3, acknowledge=True)
    assert got == [1, 2, 3]
    assert world.heard[client].count("disconnect") == world.heard[server].count("disconnect") == 0


def test_row_51_a_client_that_vanishes_is_told_after_the_expiry_and_once(world: World) -> None:
    server, client = world.pair()
    begun = time.monotonic()
    world.network.lose_driver(client._runner.transport.inbox)
    world.network.refusal = "the client is dead"
    wait_for(lambda: "disconnect" in world.heard[server].names)
    assert time.monotonic() - begun >= 0.3
    assert world.heard[server].count("disconnect") == 1
    world.network.refusal = ""


def test_row_53_reconnect_from_on_disconnect(world: World) -> None:
    server = world.server(ServerSettings(link=LINK, limits=FREE))
    client = world.client(ClientSettings(link=LINK, first_pause=0.01), connect=False)
    left = [5]
    errors: list[BaseException] = []

    def again(_: Connection) -> None:
        if left[0]:
            left[0] -= 1
            try:
                client.reconnect(10)
            except AeronSparkError as error:
                errors.append(error)

    client.on_disconnect(again)
    client.on_connect(lambda connection: connection.close())
    client.connect(10)
    heard = world.heard[client]
    wait_for(lambda: heard.count("disconnect") == 6)
    assert heard.count("connect") == 6
    assert not errors
    wait_for(lambda: server.statistics["session_ids"] == 0)


def test_row_54_a_restarted_server_gets_its_clients_back_in_new_sessions(world: World) -> None:
    store = MemoryPeerStore()
    first = world.server(store=store)
    client = world.client()
    old = client.connection
    world.network.lose_driver(first._runner.transport.inbox)
    world.network.refusal = "the driver is dead"
    first.close()
    world.network.refusal = ""
    second = world.server(store=store)
    heard = world.heard[client]
    wait_for(lambda: heard.count("connect") == 2)
    assert [type(error) for error in heard.errors_of(SessionLost)] == [SessionLost]
    assert client.connection is not old
    assert old.closed
    with pytest.raises(SessionLost):
        old.send(1)
    got: list[object] = []
    second.on_message(int, lambda c, m: got.append(m))
    client.send(5, acknowledge=True)
    assert got == [5]
    assert heard.names == ["init", "connect", "disconnect", "init", "connect"]


def test_row_55_a_resume_is_no_second_connect(world: World) -> None:
    server, client = world.pair()
    (there,) = server.connections
    there.data["state"] = "kept"
    client.reconnect(10)
    client.ping()
    for end in (server, client):
        heard = world.heard[end]
        wait_for(lambda heard=heard: "resume" in heard.names)  # type: ignore[misc]
        assert heard.count("connect") == heard.count("init") == heard.count("resume") == 1
    assert server.connections == (there,)
    assert there.data["state"] == "kept"


def test_row_56_a_session_expires_and_the_next_one_is_new(world: World) -> None:
    both = kept_for(0.4)
    server = world.server(ServerSettings(link=both, limits=FREE))
    client = world.client(ClientSettings(link=both, first_pause=0.01, longest_pause=0.02))
    wait_for(lambda: server.connections)
    world.network.cut()
    wait_for(lambda: server.statistics["sessions"] == 0)
    wait_for(lambda: world.heard[client].errors_of(SessionLost))
    world.network.heal()
    wait_for(lambda: world.heard[client].count("connect") == 2)
    wait_for(lambda: world.heard[server].names == ["init", "connect", "disconnect", "init", "connect"])


def test_row_57_what_is_sent_during_an_outage_arrives_once_and_in_order(world: World) -> None:
    server, client = world.pair()
    got: list[object] = []
    server.on_message(int, lambda c, m: got.append(m))
    world.network.cut()
    for number in range(1000):
        client.send(number)
    world.network.heal()
    client.send(1000, acknowledge=True)
    assert got == list(range(1001))


def test_row_58_without_buffering_nothing_is_taken_while_away_and_with_it_it_is_bounded(world: World) -> None:
    _, client = world.pair(session=replace(LINK.session, buffering=False))
    world.network.cut()
    wait_for(lambda: not client.connected)
    with pytest.raises(WaitTimeout, match="away"):
        client.send(1, timeout=0.01)
    assert client.connection.held["buffered_bytes"] == 0


def test_row_58_the_buffer_is_bounded(world: World) -> None:
    _, client = world.pair(session=replace(LINK.session, buffer_bytes=100_000))
    world.network.cut()
    wait_for(lambda: not client.connected)
    with pytest.raises(WaitTimeout, match="away"):
        flood(client, 1000, 0)
    assert 50_000 < client.connection.held["buffered_bytes"] <= 100_000


def test_row_50_a_close_is_told_at_once_and_once_on_both_sides(world: World) -> None:
    server, client = world.pair(times=replace(LINK.times, expiry_seconds=30.0))
    begun = time.monotonic()
    client.connection.close()
    for end in (server, client):
        wait_for(lambda end=end: "disconnect" in world.heard[end].names)  # type: ignore[misc]
    assert time.monotonic() - begun < 5
    wait_for(lambda: server.statistics["session_ids"] == 0)
    assert [world.heard[end].count("disconnect") for end in (server, client)] == [1, 1]
    wait_for(lambda: server.statistics["sessions"] == 0)


def test_close_and_send_within_on_disconnect_are_harmless(world: World) -> None:
    server, client = world.pair()
    told: list[object] = []

    def gone(connection: Connection) -> None:
        connection.close()
        with pytest.raises(AeronSparkError):
            connection.send(1)
        told.append(connection)

    server.on_disconnect(gone)
    client.on_disconnect(lambda connection: client.close())
    client.connection.close()
    wait_for(lambda: told)
    assert client.wait_closed(10)


def test_a_driver_restart_of_the_client_is_survived_without_disconnect(world: World) -> None:
    server, client = world.pair(times=replace(LINK.times, expiry_seconds=10.0))
    world.network.lose_driver(client._runner.transport.inbox)
    got: list[object] = []
    server.on_message(int, lambda c, m: got.append(m))
    client.send(1, acknowledge=True)
    assert got == [1]
    assert world.heard[client].count("disconnect") == world.heard[server].count("disconnect") == 0


def test_a_driver_restart_of_the_server_is_survived_and_it_listens_again(world: World) -> None:
    server, client = world.pair(times=replace(LINK.times, expiry_seconds=10.0))
    world.network.refusal = "no driver yet"
    world.network.lose_driver(server._runner.transport.inbox)
    wait_for(lambda: len(world.heard[server].errors) >= 2)  # it is gone, and cannot be opened yet
    world.network.refusal = ""
    got: list[object] = []
    server.on_message(int, lambda c, m: got.append(m))
    client.send(1, acknowledge=True)
    assert got == [1]
    assert world.heard[client].count("disconnect") == world.heard[server].count("disconnect") == 0
    other = world.client(source="192.0.2.9:1")
    other.ping()


def test_a_changed_nat_mapping_ends_in_a_resume_from_the_other_address(world: World) -> None:
    server = world.server()
    address = ["192.0.2.7:4000"]
    client = world.client(
        ClientSettings(link=LINK, first_pause=0.01),
        dial=lambda: MemoryClientTransport(world.network, PLACE, source=address[0]),
    )
    wait_for(lambda: server.connections)
    address[0] = "198.51.100.9:777"
    world.network.lose_driver(client._runner.transport.inbox)
    wait_for(lambda: world.heard[client].count("resume") == 1)
    (there,) = server.connections
    assert (there.remote_address, there.remote_port) == ("198.51.100.9", 777)


def test_a_client_comes_back_long_after_the_time_for_connecting_is_over(world: World) -> None:
    server = world.server()
    client = world.client(connect=False)
    client.connect(0.5)
    time.sleep(0.6)
    world.network.cut()
    wait_for(lambda: not client.connected)
    world.network.heal()
    wait_for(lambda: client.connected)
    assert server.connections


def test_without_reconnect_an_outage_ends_the_connection(world: World) -> None:
    world.server()
    client = world.client(ClientSettings(link=LINK, reconnect=False))
    world.network.cut()
    wait_for(lambda: world.heard[client].count("disconnect") == 1)
    world.network.heal()
    with pytest.raises(AeronSparkError):
        client.send(1)
    client.connect(10)
    client.ping()


def test_exactly_once_and_in_order_both_ways_across_random_cuts(world: World, rng: random.Random) -> None:
    server, client = world.pair(times=replace(LINK.times, expiry_seconds=30.0))

    class Calc:
        def __init__(self) -> None:
            self.calls = 0

        def plus(self, a: int, b: int) -> int:
            self.calls += 1
            return a + b

    calc = Calc()
    server.register("calc", calc, ["plus"])
    there: list[object] = []
    here: list[object] = []
    server.on_message(int, lambda c, m: there.append(m))
    client.on_message(int, here.append)
    big: list[bytes] = []
    server.on_message(bytes, lambda c, m: big.append(m))
    (connection,) = server.connections
    count = 3000
    results: list[int] = []

    def stream() -> None:
        for number in range(5):
            client.send(bytes([number]) * 300_000)

    def call() -> None:
        proxy = client.remote("calc").with_timeout(20)
        results.extend(proxy.plus(number, 1) for number in range(100))

    work = [
        threading.Thread(target=lambda: [client.send(n) for n in range(count)]),
        threading.Thread(target=lambda: [connection.send(n) for n in range(count)]),
        threading.Thread(target=stream),
        threading.Thread(target=call),
    ]
    for one in work:
        one.start()
    for _ in range(12):
        time.sleep(rng.uniform(0, 0.04))
        world.network.cut()
        time.sleep(rng.uniform(0, 0.02))
        world.network.heal()
    for one in work:
        one.join(60)
    wait_for(lambda: len(there) >= count and len(here) >= count and len(big) >= 5, seconds=40)
    assert there == list(range(count))
    assert here == list(range(count))
    assert big == [bytes([number]) * 300_000 for number in range(5)]
    assert results == [number + 1 for number in range(100)]
    assert calc.calls == 100
    assert world.heard[client].count("connect") == 1
    assert world.heard[server].count("disconnect") == 0


def test_the_first_frame_of_each_way_is_open(world: World) -> None:
    """Whoever sends during the resume must not overtake it."""
    server, client = world.pair(close_seconds=0.05)
    stop = threading.Event()
    got: list[object] = []
    server.on_message(int, lambda c, m: got.append(m))
    sent = [0]

    def send() -> None:
        while not stop.is_set():
            client.send(sent[0])
            sent[0] += 1

    sender = threading.Thread(target=send)
    sender.start()
    for _ in range(5):
        client.reconnect(10)
    stop.set()
    sender.join(20)
    wait_for(lambda: len(got) == sent[0])
    assert got == list(range(sent[0]))
    assert server.statistics["tampered"] == client.tampered == 0


def test_row_42_without_validation_another_key_is_let_in_flagged_and_not_stored(world: World) -> None:
    world.server(store=MemoryPeerStore(keypair_from(b"1" * 32)))
    store = MemoryPeerStore()
    client = world.client(store=store)
    (name,) = store.servers()
    stored = store.server_key(name)
    client.close()
    world.ends[0].close()
    world.server(store=MemoryPeerStore(keypair_from(b"2" * 32)))
    changed = world.client(ClientSettings(link=LINK, validate=False), store=store)
    assert changed.connection.remote_key_changed
    assert changed.server_key != stored
    assert store.server_key(name) == stored
    assert store.forget(name)


def test_use_after_close_is_named(world: World) -> None:
    _, client = world.pair()
    client.close()
    client.close()
    with pytest.raises(UsageError, match="closed"):
        client.connect(1)


def test_row_58_the_close_itself_is_never_buffered(world: World) -> None:
    server, client = world.pair(close_seconds=0.2, times=replace(LINK.times, expiry_seconds=5.0))
    connection = client.connection
    world.network.cut()
    wait_for(lambda: not client.connected)
    connection.close(keep_session=True)
    wait_for(lambda: client.state == "stopped")
    world.network.heal()
    client.connect(10)
    client.ping()
    assert client.connected
    assert server.connections

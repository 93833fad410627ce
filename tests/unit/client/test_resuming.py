"""Outages, resumes and restarts: which messages arrive, and which listeners are called."""

from __future__ import annotations

import random
import threading
import time

import pytest

from aeron_spark.endpoint.connection import Connection
from aeron_spark.errors import AeronSparkError, ConnectError, SessionLost, UsageError, WaitTimeout
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol.keypair import keypair_from
from aeron_spark.transport.api import HANDSHAKE_STREAM_ID
from tests.internals import core_of
from tests.memory_transport import MemoryClientTransport
from tests.unit.endpoint.endpoints import (
    ADDRESS,
    TIMEOUT_S,
    World,
    client_options,
    flood,
    kept_for,
    server_options,
    wait_for,
)


def test_row_52_a_short_outage_is_not_a_disconnect(world: World) -> None:
    server, client = world.pair(expiry=5.0)
    received: list[object] = []
    server.on_message(int, lambda c, m: received.append(m))
    client.send(1)
    world.network.cut()
    client.send(2)
    wait_for(lambda: not client.connected)
    world.network.heal()
    client.send(3, acknowledge=True)
    assert received == [1, 2, 3]
    assert world.recorded[client].count("disconnect") == world.recorded[server].count("disconnect") == 0


@pytest.mark.parametrize("sender", ["client", "server"])
def test_a_link_whose_frames_go_nowhere_is_replaced_and_loses_nothing(world: World, sender: str) -> None:
    """Aeron reports it as connected. If the client's frames are lost, the server hears nothing, and ends the link."""
    server, client = world.pair(keep_alive=0.1)
    received: list[object] = []
    server.on_message(int, lambda _, message: received.append(message))
    client.send(1, acknowledge=True)
    inbox = (client._endpoint if sender == "client" else server.endpoint).transport.inbox
    lost = {one for one in world.network.publications if one.inbox is inbox}
    world.network.change = lambda publication, message: () if publication in lost else (message,)
    client.send(2)
    wait_for(lambda: world.recorded[client].count("resume"), "another link")
    client.send(3, acknowledge=True)
    assert received == [1, 2, 3]
    assert server.connections


def test_a_link_that_the_server_does_not_know_any_more_is_replaced_at_once(world: World) -> None:
    """The server has another media driver, which rejects the link. Aeron's timeouts and the expiry take longer."""
    server, client = world.pair(expiry=2 * TIMEOUT_S)
    received: list[object] = []
    server.on_message(int, lambda _, message: received.append(message))
    client.send(1, acknowledge=True)
    inbox = server.endpoint.transport.inbox
    (image,) = [
        one for one in world.network.images.values()
        if one.subscription.inbox is inbox and one.publication.key[-1] != HANDSHAKE_STREAM_ID
    ]  # fmt: skip
    inbox.reject(image.id, "aeron-spark/1 FAILED unknown-session")
    client.send(2, acknowledge=True)
    assert received == [1, 2]
    wait_for(lambda: world.recorded[client].names == ["init", "connect", "resume"])


def test_row_51_a_client_that_vanishes_is_disconnected_once_after_the_expiry(world: World) -> None:
    server, client = world.pair()
    started = world.clock()
    world.network.lose_driver(client._endpoint.transport.inbox)
    world.network.refusal = "the client is dead"
    wait_for(lambda: "disconnect" in world.recorded[server].names)
    assert world.clock() - started >= 0.3
    assert world.recorded[server].count("disconnect") == 1
    world.network.refusal = ""


def test_row_53_a_disconnect_listener_can_reconnect(world: World) -> None:
    server = world.server(server_options())
    client = world.client(client_options(first_pause=0.01), connect=False)
    remaining = [5]
    errors: list[BaseException] = []

    def reconnect(_: Connection) -> None:
        if remaining[0]:
            remaining[0] -= 1
            try:
                client.reconnect(10)
            except AeronSparkError as error:
                errors.append(error)

    client.on_disconnect(reconnect)
    client.on_connect(lambda connection: connection.close())
    client.connect(10)
    recorded = world.recorded[client]
    wait_for(lambda: recorded.count("disconnect") == 6)
    assert recorded.count("connect") == 6
    assert not errors
    wait_for(lambda: server.statistics["session_ids"] == 0)


def test_row_54_clients_of_a_restarted_server_get_new_sessions(world: World) -> None:
    store = MemoryPeerStore()
    first = world.server(store=store)
    client = world.client()
    old = client.connection
    world.network.lose_driver(first.endpoint.transport.inbox)
    world.network.refusal = "the driver is dead"
    first.close()
    world.network.refusal = ""
    second = world.server(store=store)
    recorded = world.recorded[client]
    wait_for(lambda: recorded.count("connect") == 2)
    assert [type(error) for error in recorded.errors_of(SessionLost)] == [SessionLost]
    assert client.connection is not old
    assert old.closed
    with pytest.raises(SessionLost):
        old.send(1)
    received: list[object] = []
    second.on_message(int, lambda c, m: received.append(m))
    client.send(5, acknowledge=True)
    assert received == [5]
    wait_for(lambda: recorded.names == ["init", "connect", "disconnect", "init", "connect"])


def test_row_55_a_resume_does_not_call_connect_listeners_again(world: World) -> None:
    server, client = world.pair()
    (connection,) = server.connections
    connection.data["state"] = "kept"
    client.reconnect(10)
    client.ping()
    for end in (server, client):
        recorded = world.recorded[end]
        wait_for(lambda recorded=recorded: "resume" in recorded.names)  # type: ignore[misc]
        assert recorded.count("connect") == recorded.count("init") == recorded.count("resume") == 1
    assert server.connections == (connection,)
    assert connection.data["state"] == "kept"


def test_row_56_after_a_session_expires_the_client_gets_a_new_one(world: World) -> None:
    both = kept_for(0.4)
    server = world.server(server_options(**both))
    client = world.client(client_options(**both, first_pause=0.01, longest_pause=0.02))
    wait_for(lambda: server.connections)
    world.network.cut()
    wait_for(lambda: server.statistics["sessions"] == 0)
    wait_for(lambda: world.recorded[client].errors_of(SessionLost))
    world.network.heal()
    wait_for(lambda: world.recorded[client].count("connect") == 2)
    wait_for(lambda: world.recorded[server].names == ["init", "connect", "disconnect", "init", "connect"])


def test_row_57_messages_sent_during_an_outage_arrive_once_and_in_order(world: World) -> None:
    server, client = world.pair()
    received: list[object] = []
    server.on_message(int, lambda c, m: received.append(m))
    world.network.cut()
    for number in range(1000):
        client.send(number)
    world.network.heal()
    client.send(1000, acknowledge=True)
    assert received == list(range(1001))


def test_row_58_without_buffering_no_message_is_accepted_during_an_outage(world: World) -> None:
    _, client = world.pair(buffering=False)
    world.network.cut()
    wait_for(lambda: not client.connected)
    with pytest.raises(ConnectError, match="is not connected, and option 'buffering' is off"):
        client.send(1)
    assert core_of(client.connection).usage["buffered_bytes"] == 0


def test_row_58_the_buffer_is_bounded(world: World) -> None:
    _, client = world.pair(buffer_bytes=100_000)
    world.network.cut()
    wait_for(lambda: not client.connected)
    with pytest.raises(WaitTimeout, match="not connected"):
        flood(client, 1000, 0)
    assert 50_000 < core_of(client.connection).usage["buffered_bytes"] <= 100_000


def test_row_50_a_close_notifies_both_ends_once_and_at_once(world: World) -> None:
    server, client = world.pair(expiry=30.0)
    started = world.clock()
    client.connection.close()
    for end in (server, client):
        wait_for(lambda end=end: "disconnect" in world.recorded[end].names)  # type: ignore[misc]
    assert world.clock() - started < 5
    wait_for(lambda: server.statistics["session_ids"] == 0)
    assert [world.recorded[end].count("disconnect") for end in (server, client)] == [1, 1]
    wait_for(lambda: server.statistics["sessions"] == 0)


def test_close_and_send_within_on_disconnect_are_harmless(world: World) -> None:
    server, client = world.pair()
    notified: list[object] = []

    def use_connection(connection: Connection) -> None:
        connection.close()
        with pytest.raises(AeronSparkError):
            connection.send(1)
        notified.append(connection)

    server.on_disconnect(use_connection)
    client.on_disconnect(lambda connection: client.close())
    client.connection.close()
    wait_for(lambda: notified)
    assert client.wait_closed(10)


def test_a_restart_of_the_clients_driver_is_not_a_disconnect(world: World) -> None:
    server, client = world.pair(expiry=10.0)
    world.network.lose_driver(client._endpoint.transport.inbox)
    received: list[object] = []
    server.on_message(int, lambda c, m: received.append(m))
    client.send(1, acknowledge=True)
    assert received == [1]
    assert world.recorded[client].count("disconnect") == world.recorded[server].count("disconnect") == 0


def test_after_a_restart_of_its_driver_the_server_listens_again_without_disconnect(world: World) -> None:
    server, client = world.pair(expiry=10.0)
    world.network.refusal = "no driver yet"
    world.network.lose_driver(server.endpoint.transport.inbox)
    wait_for(
        lambda: len(world.recorded[server].errors) >= 2
    )  # the loss, and a failed attempt to open the transport again
    world.network.refusal = ""
    received: list[object] = []
    server.on_message(int, lambda c, m: received.append(m))
    client.send(1, acknowledge=True)
    assert received == [1]
    assert world.recorded[client].count("disconnect") == world.recorded[server].count("disconnect") == 0
    other = world.client(source="192.0.2.9:1")
    other.ping()


def test_a_client_resumes_from_its_new_address_after_a_change_of_nat_mapping(world: World) -> None:
    server = world.server()
    address = ["192.0.2.7:4000"]
    client = world.client(
        client_options(first_pause=0.01),
        dial=lambda: MemoryClientTransport(world.network, ADDRESS, source=address[0]),
    )
    wait_for(lambda: server.connections)
    address[0] = "198.51.100.9:777"
    world.network.lose_driver(client._endpoint.transport.inbox)
    wait_for(lambda: world.recorded[client].count("resume") == 1)
    (connection,) = server.connections
    assert (connection.remote_address, connection.remote_port) == ("198.51.100.9", 777)


def test_a_client_reconnects_after_the_timeout_of_its_first_connect(world: World) -> None:
    server = world.server()
    client = world.client(connect=False)
    client.connect(0.5)
    world.sleep(0.6)
    world.network.cut()
    wait_for(lambda: not client.connected)
    world.network.heal()
    wait_for(lambda: client.connected)
    assert server.connections


def test_without_reconnect_an_outage_ends_the_connection(world: World) -> None:
    world.server()
    client = world.client(client_options(reconnect=False))
    world.network.cut()
    wait_for(lambda: world.recorded[client].count("disconnect") == 1)
    world.network.heal()
    with pytest.raises(AeronSparkError):
        client.send(1)
    client.connect(10)
    client.ping()


@pytest.mark.threads
def test_messages_and_calls_arrive_exactly_once_and_in_order_over_random_outages(
    world: World, rng: random.Random
) -> None:
    server, client = world.pair(expiry=30.0)

    class Calc:
        def __init__(self) -> None:
            self.calls = 0

        def plus(self, a: int, b: int) -> int:
            self.calls += 1
            return a + b

    calc = Calc()
    server.register("calc", calc, ["plus"])
    at_server: list[object] = []
    at_client: list[object] = []
    server.on_message(int, lambda c, m: at_server.append(m))
    client.on_message(int, at_client.append)
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
    wait_for(lambda: len(at_server) >= count and len(at_client) >= count and len(big) >= 5, seconds=40)
    assert at_server == list(range(count))
    assert at_client == list(range(count))
    assert big == [bytes([number]) * 300_000 for number in range(5)]
    assert results == [number + 1 for number in range(100)]
    assert calc.calls == 100
    assert world.recorded[client].count("connect") == 1
    assert world.recorded[server].count("disconnect") == 0


@pytest.mark.threads
@pytest.mark.slow
def test_no_message_overtakes_the_first_frame_of_a_resumed_link(world: World) -> None:
    """A message that is sent during a resume must not overtake OPEN."""
    server, client = world.pair(close_timeout=0.05)
    stop = threading.Event()
    received: list[object] = []
    server.on_message(int, lambda c, m: received.append(m))
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
    wait_for(lambda: len(received) == sent[0])
    assert received == list(range(sent[0]))
    assert server.statistics["tampered"] == client.tampered == 0


def test_row_42_without_validation_a_changed_key_is_accepted_flagged_and_not_stored(world: World) -> None:
    world.server(store=MemoryPeerStore(keypair_from(b"1" * 32)))
    store = MemoryPeerStore()
    client = world.client(store=store)
    wait_for(store.servers, "the server's key in the store")
    (name,) = store.servers()
    stored = store.server_key(name)
    client.close()
    world.endpoints[0].close()
    world.server(store=MemoryPeerStore(keypair_from(b"2" * 32)))
    changed = world.client(client_options(validate=False), store=store)
    assert changed.connection.remote_key_changed
    assert changed.server_key != stored
    assert store.server_key(name) == stored
    assert store.forget(name)


def test_connect_after_close_is_refused(world: World) -> None:
    _, client = world.pair()
    client.close()
    client.close()
    with pytest.raises(UsageError, match="closed"):
        client.connect(1)


@pytest.mark.threads
def test_two_threads_that_close_a_client_release_what_it_uses_once(world: World) -> None:
    """Regression: "Bad file descriptor" when Ctrl-C ended a load test whose clients were connecting."""
    closed: list[bool] = []
    client = world.client(on_closed=closed.append, connect=False)
    client.begin_connecting()
    threads = [threading.Thread(target=client.close) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert closed == [True]


def test_row_58_the_close_is_not_buffered(world: World) -> None:
    server, client = world.pair(close_timeout=0.2, expiry=5.0)
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

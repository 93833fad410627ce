"""Connections over real drivers: filters, key stores, resumes, reconnects and closes."""

from __future__ import annotations

import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import aeron_spark
from aeron_spark.aeron.client import close_client
from aeron_spark.errors import AeronSparkError, ConnectError, EndedError, RefusedError, ServerKeyChanged, WaitTimeout
from aeron_spark.keys.stores import FilePeerStore, KeyPaths, MemoryPeerStore
from aeron_spark.protocol.access import Candidate, Filters
from aeron_spark.waiting import wait_for
from tests.aeron.secure.endpoints import TIMEOUT_S, RecordedEvents, World, await_nothing_in_use, echoes
from tests.aeron.secure.tap import SentMessage, Tap
from tests.ending import LONG_TIMEOUT_S, call_in_time


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "ipc"])
def test_row_28_a_filter_gets_address_and_tag_and_row_05_its_refusal_reaches_clients(world: World, host: str) -> None:
    address, seen = world.free_address(host), list[Candidate]()

    def only_desk_7(candidate: Candidate) -> bool:
        seen.append(candidate)
        return candidate.tag == "desk-7"

    server = world.server(address, filters=Filters(allow=(only_desk_7,)))
    client, other = world.connected(address, tag="desk-7"), world.client(address, tag="desk-8")
    with pytest.raises(RefusedError, match="Connection was not permitted!"):
        call_in_time(lambda: other.connect(LONG_TIMEOUT_S), "a connect that is refused")  # before its timeout
    client_address = None if host == "ipc" else host
    assert [(one.tag, None if one.address is None else str(one.address)) for one in seen] == [
        ("desk-7", client_address),
        ("desk-8", client_address),
    ]
    assert echoes(client, "accepted")
    [connection] = server.connections
    assert seen[0].key == connection.key
    assert seen[1].key != connection.key


def test_the_server_lists_a_connection_before_its_client_is_connected(world: World) -> None:
    listed, tap = list[int](), Tap()

    def list_connections(message: SentMessage) -> list[bytes]:
        if not message.packet and message.counter is not None:
            listed.append(len(server.connections))
        return [message.data]

    tap.change = list_connections
    address = world.free_address()
    server = world.server(address, tap=tap)
    client = world.connected(address)
    client.ping()
    assert len(listed) > 1  # OPEN, which connects the client, and later frames
    assert set(listed) == {1}


def test_row_11_connect_raises_at_its_timeout_over_aeron(world: World) -> None:
    client = world.client(world.free_address())
    for seconds in (0.5, 1.5):
        started = time.monotonic()
        with pytest.raises(WaitTimeout, match=r"127\.0\.0\.1"):
            client.connect(seconds)
        assert seconds - 0.1 <= time.monotonic() - started < seconds + 8


def test_row_12_with_timeout_0_a_client_tries_until_a_server_starts_or_it_is_closed(world: World) -> None:
    address, raised = world.free_address(), list[BaseException]()
    patient, closed = world.client(address), world.client(world.free_address())

    def connect() -> None:
        try:
            closed.connect(0)
        except AeronSparkError as error:
            raised.append(error)

    waiting = [threading.Thread(target=lambda: patient.connect(0)), threading.Thread(target=connect)]
    for one in waiting:
        one.start()
    server = world.server(address)
    waiting[0].join(TIMEOUT_S)
    assert echoes(patient, "connected")
    closed.close()
    waiting[1].join(TIMEOUT_S)
    assert isinstance(raised[0], EndedError)
    assert server.statistics["connections"] == 1


def test_row_23_without_a_server_in_shared_memory_connect_uses_udp_or_names_the_cause(world: World) -> None:
    address, aeron_dir = world.free_address(), world.serving.aeron_dir
    udp_address = f"{address.host}:{address.data_port}:{address.control_port}"
    server = world.server(address)
    try:
        arguments: dict[str, Any] = {"store": MemoryPeerStore(), "aeron_dir": aeron_dir, "timeout": LONG_TIMEOUT_S}
        with call_in_time(lambda: aeron_spark.connect(udp_address, **arguments), "the connect by UDP") as client:
            assert not client.connection.is_ipc
            assert echoes(client, "by UDP")
        with pytest.raises(ConnectError, match=r"no server listens over the shared memory.*fallback is unavailable"):
            call_in_time(lambda: aeron_spark.connect("ipc:", **arguments), "the connect by shared memory")
        server.close()
        world.server(address, world.free_address("ipc"))
        with aeron_spark.connect(udp_address, store=MemoryPeerStore(), aeron_dir=aeron_dir) as client:
            assert client.connection.is_ipc
            assert echoes(client, "by shared memory")
    finally:
        close_client(aeron_dir)


def test_row_44_key_files_last_over_restarts_and_only_their_user_can_read_them(world: World, tmp_path: Path) -> None:
    address = world.free_address()
    folders = [tmp_path / "server", tmp_path / "client"]
    keys = []
    for _ in range(2):
        server = world.server(address, store=FilePeerStore(KeyPaths.below(folders[0])))
        client = world.connected(address, store=FilePeerStore(KeyPaths.below(folders[1])))
        assert echoes(client, "known")
        [connection] = server.connections
        keys.append((connection.key, client.server_key))
        known = KeyPaths.below(folders[1]).known_servers
        wait_for(known.exists, TIMEOUT_S, "the store to remember the server")
        client.close()
        server.close()
    assert keys[0] == keys[1]
    files = [path for folder in folders for path in folder.iterdir()]
    assert {path.name for path in files} >= {"identity", "known_servers"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    world.server(address)  # with another key, in memory
    with pytest.raises(ServerKeyChanged):
        world.client(address, store=FilePeerStore(KeyPaths.below(folders[1]))).connect(TIMEOUT_S)


def test_row_43_and_row_44_stores_in_memory_are_separate_and_know_two_servers_of_one_host(world: World) -> None:
    addresses, store = [world.free_address(), world.free_address()], MemoryPeerStore()
    servers = [world.server(address) for address in addresses]
    for address in addresses:
        assert echoes(world.connected(address, store=store), "hello")
    wait_for(lambda: len(store.servers()) == 2, TIMEOUT_S, "the store to know both")
    assert set(store.servers().values()) == {server.public_key for server in servers}
    assert servers[0].public_key != servers[1].public_key
    assert world.connected(addresses[0]).connected  # with an empty store
    assert len({connection.key for connection in servers[0].connections}) == 2


@pytest.mark.parametrize("host", ["127.0.0.1", "ipc"])
def test_row_53_a_client_reconnects_five_times_from_its_disconnect_listener_and_leaks_nothing(
    world: World, host: str
) -> None:
    address = world.free_address(host)
    server = world.server(address)
    client = world.client(address)
    recorded, errors, remaining = RecordedEvents(client), list[BaseException](), [5]

    def reconnect(_: object) -> None:
        if remaining[0]:
            remaining[0] -= 1
            try:
                client.reconnect(TIMEOUT_S)
            except AeronSparkError as error:
                errors.append(error)

    client.on_disconnect(reconnect)
    client.on_connect(lambda connection: connection.close())
    client.connect(TIMEOUT_S)
    wait_for(
        lambda: recorded.count("disconnect") == 6, TIMEOUT_S, "six disconnects", state=lambda: str(recorded.events)
    )
    assert (recorded.count("init"), recorded.count("connect"), recorded.count("resume")) == (6, 6, 0)
    assert not errors
    assert not recorded.errors
    await_nothing_in_use(server)
    assert server.statistics["handshakes"] == 0


@pytest.mark.parametrize("closes", ["the client", "the server"])
def test_row_50_a_close_notifies_each_end_once_and_at_once(world: World, closes: str) -> None:
    address = world.free_address()
    patient_s = 1.5 * TIMEOUT_S  # an outage is noticed too late: it is the close
    server = world.server(address, expiry=patient_s)
    client = world.connected(address, expiry=patient_s)
    recorded = RecordedEvents(server), RecordedEvents(client)
    [connection] = server.connections
    closing = client.connection if closes == "the client" else connection
    closing.close()
    for end in recorded:
        wait_for(lambda end=end: end.count("disconnect") == 1, TIMEOUT_S, "the end")
    await_nothing_in_use(server)
    client.close()
    server.close()
    assert [end.count("disconnect") for end in recorded] == [1, 1]


def test_row_55_a_resumed_session_keeps_its_objects_and_data(world: World) -> None:
    address = world.free_address()
    server = world.server(address)
    server_events = RecordedEvents(server)
    client = world.client(address)
    client_events = RecordedEvents(client)
    client.connect(TIMEOUT_S)
    [connection] = server.connections
    connection.data["state"] = number = connection.register(Count(), ["up"])
    counter = client.remote(number)
    assert counter.up() == 1
    client.reconnect(TIMEOUT_S)
    assert echoes(client, "again")
    for recorded in (server_events, client_events):
        wait_for(lambda recorded=recorded: recorded.count("resume") == 1, TIMEOUT_S, "the resume")
        assert (recorded.count("init"), recorded.count("connect")) == (1, 1)
    assert server.connections == (connection,)
    assert connection.data == {"state": number}
    assert counter.up() == 2


class Count:
    def __init__(self) -> None:
        self.number = 0

    def up(self) -> int:
        self.number += 1
        return self.number


def test_row_79_close_while_connecting_and_before_listening_ends_soon(world: World) -> None:
    address = world.free_address()
    started = time.monotonic()
    world.client(address).close()
    world.unstarted().close()
    connecting, raised = world.client(address), list[BaseException]()

    def connect() -> None:
        try:
            connecting.connect(TIMEOUT_S)
        except AeronSparkError as error:
            raised.append(error)

    waiting = threading.Thread(target=connect)
    waiting.start()
    wait_for(lambda: connecting._endpoint.loop.is_running, TIMEOUT_S, "the attempt")
    connecting.close()
    waiting.join(TIMEOUT_S)
    assert time.monotonic() - started < 10
    assert [type(error) for error in raised] == [EndedError]

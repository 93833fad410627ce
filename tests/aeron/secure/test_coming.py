"""Who comes in, comes back and goes, over real drivers: filters, stores of keys, listeners that reconnect."""

from __future__ import annotations

import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import aeron_spark
from aeron_spark.aeron.client import close_all
from aeron_spark.connection.settings import LinkSettings
from aeron_spark.errors import AeronSparkError, ConnectError, EndedError, RefusedError, ServerKeyChanged, WaitTimeout
from aeron_spark.keys.stores import FilePeerStore, KeyPaths, MemoryPeerStore
from aeron_spark.protocol.access import Candidate, Filters
from aeron_spark.protocol.liveness import Times
from aeron_spark.waiting import wait_for
from tests.aeron.secure.ends import PATIENCE, Heard, World, echoes, nothing_held
from tests.ending import FOR_EVER, ends


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "ipc"])
def test_row_28_a_function_sees_address_and_tag_and_row_05_its_no_reaches_the_caller(world: World, host: str) -> None:
    place, seen = world.place(host), list[Candidate]()

    def only_desk_7(who: Candidate) -> bool:
        seen.append(who)
        return who.tag == "desk-7"

    server = world.server(place, filters=Filters(allow=(only_desk_7,)))
    client, other = world.connected(place, tag="desk-7"), world.client(place, tag="desk-8")
    with pytest.raises(RefusedError, match="Connection was not permitted!"):
        ends(lambda: other.connect(FOR_EVER), "a connect that is refused")  # and not by its time-out, with a reason
    address = None if host == "ipc" else host
    assert [(who.tag, None if who.address is None else str(who.address)) for who in seen] == [
        ("desk-7", address),
        ("desk-8", address),
    ]
    assert echoes(client, "it may")
    [there] = server.connections
    assert seen[0].key == there.key
    assert seen[1].key != there.key


def test_row_11_a_client_gives_up_at_the_time_it_was_given(world: World) -> None:
    client = world.client(world.place())
    for seconds in (0.5, 1.5):
        begun = time.monotonic()
        with pytest.raises(WaitTimeout, match=r"127\.0\.0\.1"):
            client.connect(seconds)
        assert seconds - 0.1 <= time.monotonic() - begun < seconds + 8


def test_row_12_without_a_time_it_tries_until_there_is_a_server_or_it_is_closed(world: World) -> None:
    place, raised = world.place(), list[BaseException]()
    patient, closed = world.client(place), world.client(world.place())

    def connect() -> None:
        try:
            closed.connect(0)
        except AeronSparkError as error:
            raised.append(error)

    waiting = [threading.Thread(target=lambda: patient.connect(0)), threading.Thread(target=connect)]
    for one in waiting:
        one.start()
    server = world.server(place)
    waiting[0].join(PATIENCE)
    assert echoes(patient, "there you are")
    closed.close()
    waiting[1].join(PATIENCE)
    assert isinstance(raised[0], EndedError)
    assert server.statistics["connections"] == 1


def test_row_23_without_a_server_in_shared_memory_it_is_udp_within_seconds_or_said_why_not(world: World) -> None:
    place, aeron_dir = world.place(), world.serving.aeron_dir
    address = f"{place.host}:{place.data_port}:{place.control_port}"
    server = world.server(place)
    try:
        asked: dict[str, Any] = {"store": MemoryPeerStore(), "aeron_dir": aeron_dir, "timeout": FOR_EVER}
        with ends(lambda: aeron_spark.connect(address, **asked), "the connect by UDP") as client:
            assert not client.connection.is_ipc
            assert echoes(client, "by UDP")
        with pytest.raises(ConnectError, match=r"no server listens over the shared memory.*fallback is unavailable"):
            ends(lambda: aeron_spark.connect("ipc:", **asked), "the connect by shared memory")
        server.close()
        world.server(place, world.place("ipc"))
        with aeron_spark.connect(address, store=MemoryPeerStore(), aeron_dir=aeron_dir) as client:
            assert client.connection.is_ipc
            assert echoes(client, "by shared memory")
    finally:
        close_all()


def test_row_44_keys_in_files_survive_both_ends_and_nobody_else_can_read_them(world: World, tmp_path: Path) -> None:
    place = world.place()
    folders = [tmp_path / "server", tmp_path / "client"]
    keys = []
    for _ in range(2):
        server = world.server(place, store=FilePeerStore(KeyPaths.below(folders[0])))
        client = world.connected(place, store=FilePeerStore(KeyPaths.below(folders[1])))
        assert echoes(client, "known")
        [there] = server.connections
        keys.append((there.key, client.server_key))
        known = KeyPaths.below(folders[1]).known_servers
        wait_for(known.exists, PATIENCE, "the store to remember the server")
        client.close()
        server.close()
    assert keys[0] == keys[1]
    files = [path for folder in folders for path in folder.iterdir()]
    assert {path.name for path in files} >= {"identity", "known_servers"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    world.server(place)  # whose key is in memory, and another
    with pytest.raises(ServerKeyChanged):
        world.client(place, store=FilePeerStore(KeyPaths.below(folders[1]))).connect(PATIENCE)


def test_row_43_and_row_44_stores_in_memory_have_nothing_in_common_and_two_servers_of_a_host_are_two(
    world: World,
) -> None:
    places, store = [world.place(), world.place()], MemoryPeerStore()
    servers = [world.server(place) for place in places]
    for place in places:
        assert echoes(world.connected(place, store=store), "hello")
    wait_for(lambda: len(store.servers()) == 2, PATIENCE, "the store to know both")
    assert set(store.servers().values()) == {server.public_key for server in servers}
    assert servers[0].public_key != servers[1].public_key
    assert world.connected(places[0]).connected  # a store that knows nothing
    assert len({connection.key for connection in servers[0].connections}) == 2


@pytest.mark.parametrize("host", ["127.0.0.1", "ipc"])
def test_row_53_a_client_reconnects_five_times_from_its_disconnect_listener_and_nothing_is_left(
    world: World, host: str
) -> None:
    place = world.place(host)
    server = world.server(place)
    client = world.client(place)
    heard, errors, left = Heard(client), list[BaseException](), [5]

    def again(_: object) -> None:
        if left[0]:
            left[0] -= 1
            try:
                client.reconnect(PATIENCE)
            except AeronSparkError as error:
                errors.append(error)

    client.on_disconnect(again)
    client.on_connect(lambda connection: connection.close())
    client.connect(PATIENCE)
    wait_for(lambda: heard.count("disconnect") == 6, PATIENCE, "six ends", state=lambda: str(heard.events))
    assert (heard.count("init"), heard.count("connect"), heard.count("resume")) == (6, 6, 0)
    assert not errors
    assert not heard.errors
    nothing_held(server)
    assert server.statistics["handshakes"] == 0


@pytest.mark.parametrize("closes", ["the client", "the server"])
def test_row_50_a_close_is_known_at_once_and_told_once_to_each_side(world: World, closes: str) -> None:
    place = world.place()
    patient = LinkSettings(times=Times(expiry_seconds=1.5 * PATIENCE))  # an outage is noticed too late: it is the close
    server = world.server(place, link=patient)
    client = world.connected(place, link=patient)
    heard = Heard(server), Heard(client)
    [there] = server.connections
    connection = client.connection if closes == "the client" else there
    connection.close()
    for side in heard:
        wait_for(lambda side=side: side.count("disconnect") == 1, PATIENCE, "the end")  # type: ignore[misc]
    nothing_held(server)
    client.close()
    server.close()
    assert [side.count("disconnect") for side in heard] == [1, 1]


def test_row_55_a_resumed_session_goes_on_where_it_was(world: World) -> None:
    place = world.place()
    server = world.server(place)
    heard_there = Heard(server)
    client = world.client(place)
    heard_here = Heard(client)
    client.connect(PATIENCE)
    [there] = server.connections
    there.data["state"] = number = there.register(Count(), ["up"])
    counter = client.remote(number)
    assert counter.up() == 1
    client.reconnect(PATIENCE)
    assert echoes(client, "again")
    for heard in (heard_there, heard_here):
        wait_for(lambda heard=heard: heard.count("resume") == 1, PATIENCE, "the resume")  # type: ignore[misc]
        assert (heard.count("init"), heard.count("connect")) == (1, 1)
    assert server.connections == (there,)
    assert there.data == {"state": number}
    assert counter.up() == 2


class Count:
    def __init__(self) -> None:
        self.number = 0

    def up(self) -> int:
        self.number += 1
        return self.number


def test_row_79_closing_while_it_connects_and_before_and_before_listening_ends_soon(world: World) -> None:
    place = world.place()
    begun = time.monotonic()
    world.client(place).close()
    world.unstarted().close()
    connecting, raised = world.client(place), list[BaseException]()

    def connect() -> None:
        try:
            connecting.connect(PATIENCE)
        except AeronSparkError as error:
            raised.append(error)

    waiting = threading.Thread(target=connect)
    waiting.start()
    wait_for(lambda: connecting._runtime.loop.is_running, PATIENCE, "the attempt")
    connecting.close()
    waiting.join(PATIENCE)
    assert time.monotonic() - begun < 10
    assert [type(error) for error in raised] == [EndedError]

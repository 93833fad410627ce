"""Endpoints in virtual time: a test's waits turn their event loops, and nothing waits in real time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from aeron_spark.errors import ConnectError, WaitTimeout
from tests.unit.endpoint.endpoints import TIMEOUT_S, World, client_options, flood, server_options, wait_for


@pytest.fixture
def world() -> Iterator[World]:
    one = World(virtual=True)
    yield one
    one.close()


class Sums:
    """An object of a server."""

    def add(self, one: int, other: int) -> int:
        return one + other


def test_messages_calls_and_pings_need_no_thread(world: World) -> None:
    before = set(threading.enumerate())
    server, client = world.pair()
    received: list[object] = []
    server.on_message(str, lambda connection, message: received.append(message))
    server.register("sums", Sums(), ["add"])
    client.send("one", acknowledge=True)
    assert received == ["one"]
    assert client.remote("sums").add(2, 3) == 5
    assert 0.0 <= client.ping() < 0.1
    assert set(threading.enumerate()) == before


def test_a_wait_takes_virtual_time(world: World) -> None:
    _, client = world.pair(expiry=10_000.0, session_timeout=20_000.0)
    world.network.change = lambda publication, message: ()
    began, real = world.clock(), time.monotonic()
    with pytest.raises(WaitTimeout, match=r"waited 60 s for the response of .* to a ping"):
        client.ping(60.0)
    assert 60.0 <= world.clock() - began < 61.0
    assert time.monotonic() - real < TIMEOUT_S


def test_a_client_reconnects_after_an_outage(world: World) -> None:
    server, client = world.pair()
    received: list[object] = []
    server.on_message(str, lambda connection, message: received.append(message))
    world.network.cut()
    wait_for(lambda: not client.connected, "the loss of the link")
    client.send("during the outage")
    world.network.heal()
    wait_for(lambda: received == ["during the outage"], "the message")
    assert world.recorded[client].names == ["init", "connect", "resume"]


def test_connect_raises_at_its_deadline(world: World) -> None:
    client = world.client(client_options(), connect=False)
    began = world.clock()
    with pytest.raises((WaitTimeout, ConnectError)):
        client.connect(30.0)
    assert 30.0 <= world.clock() - began < 36.0


def test_a_slow_peer_gives_back_pressure(world: World) -> None:
    server = world.server(server_options(queue_bytes=1_000))
    client = world.client()
    server.on_message(bytes, lambda connection, message: world.sleep(1.0))
    with pytest.raises(WaitTimeout, match="did not accept a message"):
        flood(client, 10_000, 0.01)


def test_another_thread_must_not_wait_in_virtual_time(world: World) -> None:
    _, client = world.pair()
    errors: list[BaseException] = []

    def ping() -> None:
        try:
            client.ping()
        except AssertionError as error:
            errors.append(error)

    thread = threading.Thread(target=ping)
    thread.start()
    thread.join(TIMEOUT_S)
    assert "mark the test 'threads'" in str(errors[0])

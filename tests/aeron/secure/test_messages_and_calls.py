"""Messages, pings and remote calls over UDP and over shared memory, through real drivers."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pytest

from aeron_spark.client.client import Client
from aeron_spark.endpoint.connection import Connection
from aeron_spark.errors import AeronSparkError, RefusedError, RemoteError, WaitTimeout
from aeron_spark.protocol.frame_cipher import OVERHEAD_BYTES
from aeron_spark.protocol.frames import FRAME_HEAD, RECORD_HEAD, RecordKind
from aeron_spark.protocol.message_types import TYPE_ID
from aeron_spark.transport.api import MTU_BYTES, ServerAddress
from aeron_spark.waiting import wait_for
from tests.aeron.secure.endpoints import TIMEOUT_S, RecordedEvents, World, await_nothing_in_use
from tests.aeron.secure.tap import Tap
from tests.ending import LONG_TIMEOUT_S
from tests.ending import call_in_time as complete
from tests.internals import core_of
from tests.message_server import MessageServer

KIB: Final = 1024
MAX_UNFRAGMENTED: Final = (
    MTU_BYTES - 32 - OVERHEAD_BYTES - FRAME_HEAD.size - RECORD_HEAD.size - TYPE_ID.size
)  # bytes in one packet
METHODS: Final = ("get", "wait", "fail", "fail_unregistered", "count", "same")
MANY_CALLS_TIMEOUT_S: Final = 300.0  # for a million calls


class Thing:
    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.counted = 0
        self.released = threading.Event()
        self._lock = threading.Lock()

    def get(self) -> int:
        return self.number

    def wait(self) -> str:
        """Return when the test sets ``released``."""
        self.released.wait(LONG_TIMEOUT_S)
        return "waited"

    def fail(self) -> None:
        raise ValueError("a wrong value")

    def fail_unregistered(self) -> None:
        raise UnregisteredError("an odd one")

    def count(self) -> None:
        with self._lock:
            self.counted += 1

    def same(self, other: object) -> bool:
        return other is self


class UnregisteredError(Exception):
    """An error class that is not registered."""


@dataclass
class Pair:
    """A server without message listeners, a connected client, and their recorded events."""

    address: ServerAddress
    server: MessageServer
    client: Client
    server_connection: Connection
    server_events: RecordedEvents
    client_events: RecordedEvents
    thing: Thing


@pytest.fixture(params=["127.0.0.1", "ipc"])
def ends(world: World, request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = connected_pair(world, world.free_address(request.param))
    yield made
    made.client.close()
    await_nothing_in_use(made.server)


def connected_pair(world: World, address: ServerAddress, **changes: int) -> Pair:
    thing = Thing(23)
    server = world.server(address, echo=False, **changes)
    server.register("thing", thing, METHODS)
    server.factory("things", Thing, METHODS)
    client = world.connected(address, **changes)
    [server_connection] = server.connections
    return Pair(address, server, client, server_connection, RecordedEvents(server), RecordedEvents(client), thing)


def test_row_47_a_hundred_pings_have_plausible_round_trips(ends: Pair) -> None:
    for end in (ends.client, ends.server_connection):
        round_trips = []
        for _ in range(100):
            started = time.monotonic()
            round_trips.append(end.ping())
            assert 0 < round_trips[-1] <= time.monotonic() - started
        assert sorted(round_trips)[50] < 0.1  # some 0.3 ms on an idle machine
    assert core_of(ends.client.connection).usage["pings"] == core_of(ends.server_connection).usage["pings"] == 0


def test_row_48_a_ping_without_a_response_ends_at_its_deadline_and_does_not_delay_close(world: World) -> None:
    address, tap = world.free_address(), Tap()
    server = world.server(address, tap=tap)
    client = world.connected(address)
    client.ping()
    tap.change = lambda message: [message.data] if message.packet else []  # the server sends no more frames
    started = time.monotonic()
    with pytest.raises(WaitTimeout, match="ping"):
        client.ping(0.5)
    assert 0.5 <= time.monotonic() - started < 10  # not the default timeout of 30 s
    assert core_of(client.connection).usage["pings"] == 0
    started = time.monotonic()
    client.close()
    assert time.monotonic() - started < 10
    wait_for(lambda: not server.connections, TIMEOUT_S, "the server to close the connection")


def test_row_49_an_acknowledged_send_returns_after_the_listener(ends: Pair) -> None:
    received: list[object] = []

    def receive_slowly(_: Connection, message: int) -> None:
        time.sleep(0.001)
        received.append(message)

    ends.server.on_message(int, receive_slowly)
    for number in range(100):
        ends.client.send(number, acknowledge=True)
        assert received[-1] == number
    assert core_of(ends.client.connection).usage["acknowledgements"] == 0


def test_row_59_a_hundred_thousand_messages_arrive_in_order_in_each_direction(ends: Pair) -> None:
    at_server, at_client = list[object](), list[object]()
    ends.server.on_message(int, lambda _, message: at_server.append(message))
    ends.client.on_message(int, at_client.append)
    numbers = list(range(100_000))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda end: end.send_many(numbers), (ends.client, ends.server_connection)))
    wait_for(lambda: len(at_server) >= len(numbers) and len(at_client) >= len(numbers), TIMEOUT_S, "all")
    assert at_server == at_client == numbers


def test_row_60_a_slow_listener_loses_no_message_and_send_has_a_timeout(world: World) -> None:
    ends = connected_pair(world, world.free_address(), queue_bytes=50_000, buffer_bytes=200_000)
    go, received = threading.Event(), list[bytes]()

    def slow(_: Connection, message: bytes) -> None:
        go.wait(TIMEOUT_S)
        received.append(bytes(message[:8]))

    ends.server.on_message(bytes, slow)
    started, refused, sent = time.monotonic(), list[WaitTimeout](), 0
    while not refused and sent < 20_000:
        started = time.monotonic()
        try:
            ends.client.send(b"%08d" % sent + bytes(1000), timeout=0.2)
            sent += 1
        except WaitTimeout as error:
            refused.append(error)
    assert "did not accept a message before the timeout" in str(refused[0])
    assert 0.2 <= time.monotonic() - started < 10  # not the default timeout of 30 s
    assert sent > 100
    go.set()
    ends.client.send(b"%08d" % sent, acknowledge=True)
    assert received == [b"%08d" % number for number in range(sent + 1)]


@pytest.mark.parametrize(
    "size",
    [
        MAX_UNFRAGMENTED - 1,
        MAX_UNFRAGMENTED,
        MAX_UNFRAGMENTED + 1,
        1375,
        1376,
        1377,
        64 * KIB,
        96 * KIB,
        96 * KIB + 1,
        32 * KIB * KIB,
    ],
)
def test_row_61_messages_of_sizes_around_each_limit_arrive_unchanged(ends: Pair, size: int, rng: random.Random) -> None:
    at_server, at_client = list[bytes](), list[bytes]()
    ends.server.on_message(bytes, lambda _, message: at_server.append(message))
    ends.client.on_message(bytes, at_client.append)
    message = rng.randbytes(size)
    for end in (ends.client, ends.server_connection):
        end.send(message, acknowledge=True)
    assert at_server == at_client == [message]


def test_row_66_objects_are_called_by_name_and_number_created_and_deleted(ends: Pair) -> None:
    ends.server_connection.register(Thing(123), METHODS, 7)
    assert (ends.client.remote("thing").get(), ends.client.remote(7).get()) == (23, 123)
    made = ends.client.create("things", 5)
    assert made.get() == 5
    assert ends.server.statistics["objects"] == 2
    ends.client.delete(made)
    assert ends.server.statistics["objects"] == 1
    with pytest.raises(AeronSparkError):
        made.get()


def test_row_67_a_call_ends_at_its_deadline_and_timeout_0_has_none(ends: Pair) -> None:
    thing = ends.client.remote("thing")
    started = time.monotonic()
    with pytest.raises(WaitTimeout):
        thing.with_timeout(0.5).wait()
    assert time.monotonic() - started >= 0.5
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(thing.with_timeout(0).wait)
        wait_for(lambda: core_of(ends.client.connection).usage["calls"] == 1, TIMEOUT_S, "the call")
        ends.thing.released.set()
        assert waiting.result(TIMEOUT_S) == "waited"
    assert thing.with_timeout(TIMEOUT_S).wait() == "waited"
    wait_for(lambda: not ends.server.statistics["running"], TIMEOUT_S, "the call that timed out")
    assert core_of(ends.client.connection).usage["calls"] == 0


def test_row_68_an_exception_reaches_its_caller_with_class_and_text_or_as_a_general_error(ends: Pair) -> None:
    thing = ends.client.remote("thing").with_timeout(LONG_TIMEOUT_S)
    with pytest.raises(RemoteError, match="a wrong value") as known:
        complete(thing.fail, "a call that fails")
    with pytest.raises(RemoteError, match="an odd one") as strange:
        complete(thing.fail_unregistered, "a call that fails oddly")
    assert (known.value.code, strange.value.code) == ("ValueError", "RemoteError")


def test_row_69_a_one_way_call_returns_at_once_and_call_modes_combine(ends: Pair) -> None:
    thing = ends.client.remote("thing")
    assert thing.oneway.wait() is None  # it returns before the call does
    with pytest.raises(WaitTimeout):
        thing.with_timeout(0.1).wait()
    ends.thing.released.set()
    assert thing.oneway.with_timeout(0.1).count() is None
    assert thing.get() == 23
    wait_for(lambda: ends.thing.counted == 1, TIMEOUT_S, "the one-way call")


def test_row_70_a_reference_becomes_its_object_again_and_numbers_of_two_clients_do_not_mix(
    world: World, ends: Pair
) -> None:
    proxy = ends.client.remote("thing")
    assert proxy.same(proxy) is True
    other = world.connected(ends.address)
    [second] = [one for one in ends.server.connections if one is not ends.server_connection]
    for number in (4, 32_767, 32_768, 70_000):
        ends.server_connection.register(Thing(number), METHODS, number)
        second.register(Thing(-number), METHODS, number)
        assert (ends.client.remote(number).get(), other.remote(number).get()) == (number, -number)
    other.close()


def test_row_71_late_responses_and_those_of_another_connection_are_ignored(world: World, ends: Pair) -> None:
    other, thing = world.connected(ends.address), ends.client.remote("thing")
    with pytest.raises(WaitTimeout):
        thing.with_timeout(0.1).wait()  # its response arrives while the next call waits
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(thing.with_timeout(TIMEOUT_S).wait)
        wait_for(lambda: core_of(ends.client.connection).usage["calls"] == 1, TIMEOUT_S, "the call")
        for number in range(1, 20):
            core_of(other.connection).sender.reply(RecordKind.RETURN, number.to_bytes(8, "big") + b"\x00\xa6forged")
        other.ping()
        assert not waiting.done()
        ends.thing.released.set()
        assert waiting.result(TIMEOUT_S) == "waited"
    other.close()
    assert not ends.client_events.errors


@pytest.mark.parametrize("one_way", [10_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_row_72_all_one_way_calls_arrive_and_a_thousand_calls_get_responses(ends: Pair, one_way: int) -> None:
    thing = ends.client.remote("thing").with_timeout(TIMEOUT_S)
    for _ in range(one_way):
        thing.oneway.count()
    wait_for(lambda: ends.thing.counted >= one_way, MANY_CALLS_TIMEOUT_S, "all", state=lambda: str(ends.thing.counted))
    assert ends.thing.counted == one_way
    for _ in range(1_000):
        thing.count()
    assert ends.thing.counted == one_way + 1_000
    assert not ends.server_events.errors
    assert core_of(ends.client.connection).usage["calls"] == 0


def test_row_73_listeners_of_type_base_type_and_connection_are_called_and_exceptions_reported(ends: Pair) -> None:
    called: list[str] = []

    def broken(_: Connection, __: object) -> None:
        called.append("type")
        raise ValueError("mine")

    ends.server.on_message(int, broken)
    ends.server.on_message(object, lambda _, __: called.append("base type"))
    ends.server_connection.on_message(int, lambda _: called.append("connection"))
    for number in range(21):
        with pytest.raises(RefusedError, match="a listener of the peer raised ValueError: mine"):
            ends.client.send(number, acknowledge=True)
    assert called == ["type", "base type", "connection"] * 21
    assert [repr(error) for error in ends.server_events.errors] == ["ValueError('mine')"] * 21
    assert not ends.client_events.errors
    ends.client.ping()

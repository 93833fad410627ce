"""Messages, pings and remote calls over UDP and over shared memory, through real drivers."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import pytest

from aeron_spark.client.client import Client
from aeron_spark.connection.connection import Connection
from aeron_spark.connection.settings import LinkSettings
from aeron_spark.errors import AeronSparkError, RemoteError, WaitTimeout
from aeron_spark.protocol.frame_cipher import OVERHEAD_BYTES
from aeron_spark.protocol.frames import FRAME_HEAD, RECORD_HEAD, RecordKind
from aeron_spark.protocol.message_types import TYPE_ID
from aeron_spark.server.server import TransportServer
from aeron_spark.transport.api import MTU_BYTES, ServerAddress
from aeron_spark.waiting import wait_for
from tests.aeron.secure.ends import PATIENCE, Heard, World, nothing_held
from tests.aeron.secure.tapped import Tap
from tests.ending import FOR_EVER
from tests.ending import ends as complete

KIB: Final = 1024
WHOLE: Final = MTU_BYTES - 32 - OVERHEAD_BYTES - FRAME_HEAD.size - RECORD_HEAD.size - TYPE_ID.size  # in one packet
METHODS: Final = ("get", "wait", "fail", "odd", "count", "same")
LONG: Final = 300.0  # seconds for a million of anything


class Thing:
    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.counted = 0
        self.released = threading.Event()
        self._lock = threading.Lock()

    def get(self) -> int:
        return self.number

    def wait(self) -> str:
        """Return when the test says so."""
        self.released.wait(FOR_EVER)
        return "waited"

    def fail(self) -> None:
        raise ValueError("a wrong value")

    def odd(self) -> None:
        raise OddError("an odd one")

    def count(self) -> None:
        with self._lock:
            self.counted += 1

    def same(self, other: object) -> bool:
        return other is self


class OddError(Exception):
    """A kind that nobody registered."""


@dataclass
class Ends:
    """A server that listens to nothing yet, a client that is connected, and what their listeners were told."""

    place: ServerAddress
    server: TransportServer
    client: Client
    there: Connection
    heard_there: Heard
    heard_here: Heard
    thing: Thing


@pytest.fixture(params=["127.0.0.1", "ipc"])
def ends(world: World, request: pytest.FixtureRequest) -> Iterator[Ends]:
    made = joined(world, world.place(request.param))
    yield made
    made.client.close()
    nothing_held(made.server)


def joined(world: World, place: ServerAddress, link: LinkSettings | None = None) -> Ends:
    thing, settings = Thing(23), link or LinkSettings()
    server = world.server(place, echo=False, link=settings)
    server.register("thing", thing, METHODS)
    server.factory("things", Thing, METHODS)
    client = world.connected(place, link=settings)
    [there] = server.connections
    return Ends(place, server, client, there, Heard(server), Heard(client), thing)


def test_row_47_a_hundred_pings_have_a_hundred_plausible_round_trips(ends: Ends) -> None:
    for end in (ends.client, ends.there):
        trips = [end.ping() for _ in range(100)]
        assert all(0 < trip < 1 for trip in trips)
        assert sorted(trips)[50] < 0.1  # some 0.3 ms on an idle machine
    assert ends.client.connection.held["pings"] == ends.there.held["pings"] == 0


def test_row_48_a_ping_without_an_answer_ends_at_its_deadline_and_holds_up_no_close(world: World) -> None:
    place, tap = world.place(), Tap()
    server = world.server(place, tap=tap)
    client = world.connected(place)
    client.ping()
    tap.change = lambda said: [said.data] if said.packet else []  # the server says nothing more
    begun = time.monotonic()
    with pytest.raises(WaitTimeout, match="ping"):
        client.ping(0.5)
    assert 0.5 <= time.monotonic() - begun < 10  # and not the 30 s of a ping that was given no time
    assert client.connection.held["pings"] == 0
    begun = time.monotonic()
    client.close()
    assert time.monotonic() - begun < 10
    wait_for(lambda: not server.connections, PATIENCE, "the server to know")


def test_row_49_an_acknowledged_message_was_heard_before_the_send_returns(ends: Ends) -> None:
    got: list[object] = []

    def slowly(_: Connection, message: int) -> None:
        time.sleep(0.001)
        got.append(message)

    ends.server.on_message(int, slowly)
    for number in range(100):
        ends.client.send(number, acknowledge=True)
        assert got[-1] == number
    assert ends.client.connection.held["acknowledgements"] == 0


def test_row_59_a_hundred_thousand_messages_arrive_in_order_each_way(ends: Ends) -> None:
    there, here = list[object](), list[object]()
    ends.server.on_message(int, lambda _, message: there.append(message))
    ends.client.on_message(int, here.append)
    numbers = list(range(100_000))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda end: end.send_many(numbers), (ends.client, ends.there)))
    wait_for(lambda: len(there) >= len(numbers) and len(here) >= len(numbers), PATIENCE, "all")
    assert there == here == numbers


def test_row_60_a_slow_listener_costs_no_messages_and_the_wait_for_it_can_be_bounded(world: World) -> None:
    small = LinkSettings(queue_bytes=50_000)
    ends = joined(world, world.place(), replace(small, session=replace(small.session, buffer_bytes=200_000)))
    go, got = threading.Event(), list[bytes]()

    def slow(_: Connection, message: bytes) -> None:
        go.wait(PATIENCE)
        got.append(bytes(message[:8]))

    ends.server.on_message(bytes, slow)
    begun, refused, sent = time.monotonic(), list[WaitTimeout](), 0
    while not refused and sent < 20_000:
        begun = time.monotonic()
        try:
            ends.client.send(b"%08d" % sent + bytes(1000), timeout=0.2)
            sent += 1
        except WaitTimeout as error:
            refused.append(error)
    assert "took no more messages in time" in str(refused[0])
    assert 0.2 <= time.monotonic() - begun < 10  # and not the 30 s of a message that was given no time
    assert sent > 100
    go.set()
    ends.client.send(b"%08d" % sent, acknowledge=True)
    assert got == [b"%08d" % number for number in range(sent + 1)]


@pytest.mark.parametrize(
    "size", [WHOLE - 1, WHOLE, WHOLE + 1, 1375, 1376, 1377, 64 * KIB, 96 * KIB, 96 * KIB + 1, 32 * KIB * KIB]
)
def test_row_61_messages_of_sizes_around_every_limit_arrive_as_they_were(
    ends: Ends, size: int, rng: random.Random
) -> None:
    there, here = list[bytes](), list[bytes]()
    ends.server.on_message(bytes, lambda _, message: there.append(message))
    ends.client.on_message(bytes, here.append)
    message = rng.randbytes(size)
    for end in (ends.client, ends.there):
        end.send(message, acknowledge=True)
    assert there == here == [message]


def test_row_66_objects_are_found_by_name_and_number_made_with_arguments_called_and_deleted(ends: Ends) -> None:
    ends.there.register(Thing(123), METHODS, 7)
    assert (ends.client.remote("thing").get(), ends.client.remote(7).get()) == (23, 123)
    made = ends.client.create("things", 5)
    assert made.get() == 5
    assert ends.server.statistics["objects"] == 2
    ends.client.delete(made)
    assert ends.server.statistics["objects"] == 1
    with pytest.raises(AeronSparkError):
        made.get()


def test_row_67_a_call_ends_at_its_deadline_and_0_waits(ends: Ends) -> None:
    thing = ends.client.remote("thing")
    begun = time.monotonic()
    with pytest.raises(WaitTimeout):
        thing.with_timeout(0.5).wait()
    assert time.monotonic() - begun >= 0.5
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(thing.with_timeout(0).wait)
        wait_for(lambda: ends.client.connection.held["calls"] == 1, PATIENCE, "the call")
        ends.thing.released.set()
        assert waiting.result(PATIENCE) == "waited"
    assert thing.with_timeout(PATIENCE).wait() == "waited"
    wait_for(lambda: not ends.server.statistics["running"], PATIENCE, "the call that was given up")
    assert ends.client.connection.held["calls"] == 0


def test_row_68_an_exception_comes_back_with_its_kind_and_text_and_a_strange_one_as_a_general_error(ends: Ends) -> None:
    thing = ends.client.remote("thing").with_timeout(FOR_EVER)
    with pytest.raises(RemoteError, match="a wrong value") as known:
        complete(thing.fail, "a call that fails")
    with pytest.raises(RemoteError, match="an odd one") as strange:
        complete(thing.odd, "a call that fails oddly")
    assert (known.value.code, strange.value.code) == ("ValueError", "RemoteError")


def test_row_69_a_call_that_does_not_wait_returns_at_once_and_ways_of_calling_nest(ends: Ends) -> None:
    thing = ends.client.remote("thing")
    assert thing.oneway.wait() is None  # it returns, and the call does not
    with pytest.raises(WaitTimeout):
        thing.with_timeout(0.1).wait()
    ends.thing.released.set()
    assert thing.oneway.with_timeout(0.1).count() is None
    assert thing.get() == 23
    wait_for(lambda: ends.thing.counted == 1, PATIENCE, "the call nobody waits for")


def test_row_70_a_reference_comes_home_as_the_object_and_numbers_of_two_clients_do_not_mix(
    world: World, ends: Ends
) -> None:
    proxy = ends.client.remote("thing")
    assert proxy.same(proxy) is True
    other = world.connected(ends.place)
    [second] = [one for one in ends.server.connections if one is not ends.there]
    for number in (4, 32_767, 32_768, 70_000):
        ends.there.register(Thing(number), METHODS, number)
        second.register(Thing(-number), METHODS, number)
        assert (ends.client.remote(number).get(), other.remote(number).get()) == (number, -number)
    other.close()


def test_row_71_a_late_answer_and_one_of_another_connection_are_ignored(world: World, ends: Ends) -> None:
    other, thing = world.connected(ends.place), ends.client.remote("thing")
    with pytest.raises(WaitTimeout):
        thing.with_timeout(0.1).wait()  # its answer comes while the next one waits
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(thing.with_timeout(PATIENCE).wait)
        wait_for(lambda: ends.client.connection.held["calls"] == 1, PATIENCE, "the call")
        for number in range(1, 20):
            other.connection.sender.reply(RecordKind.RETURN, number.to_bytes(8, "big") + b"\x00\xa6forged")
        other.ping()
        assert not waiting.done()
        ends.thing.released.set()
        assert waiting.result(PATIENCE) == "waited"
    other.close()
    assert not ends.heard_here.errors


@pytest.mark.parametrize("one_way", [10_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_row_72_all_calls_that_nobody_waits_for_arrive_and_a_thousand_that_are_answered(
    ends: Ends, one_way: int
) -> None:
    thing, begun = ends.client.remote("thing").with_timeout(PATIENCE), time.monotonic()
    for _ in range(one_way):
        thing.oneway.count()
    wait_for(lambda: ends.thing.counted >= one_way, LONG, "all", state=lambda: str(ends.thing.counted))
    print(f"{one_way / (time.monotonic() - begun):,.0f} one-way calls a second")
    assert ends.thing.counted == one_way
    for _ in range(1_000):
        thing.count()
    assert ends.thing.counted == one_way + 1_000
    assert not ends.heard_there.errors
    assert ends.client.connection.held["calls"] == 0


def test_row_73_listeners_by_type_base_type_and_connection_are_called_and_an_exception_goes_to_on_error_alone(
    ends: Ends,
) -> None:
    fired: list[str] = []

    def broken(_: Connection, __: object) -> None:
        fired.append("type")
        raise ValueError("mine")

    ends.server.on_message(int, broken)
    ends.server.on_message(object, lambda _, __: fired.append("base type"))
    ends.there.on_message(int, lambda _: fired.append("connection"))
    for number in range(21):
        ends.client.send(number, acknowledge=True)
    assert fired == ["type", "base type", "connection"] * 21
    assert [repr(error) for error in ends.heard_there.errors] == ["ValueError('mine')"] * 21
    assert not ends.heard_here.errors
    assert ends.client.ping() < 1

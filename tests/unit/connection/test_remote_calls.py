"""Remote calls over a connection."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import ClassVar

import msgspec
import pytest

from aeron_spark.errors import AeronSparkError, RemoteError, UsageError, WaitTimeout
from aeron_spark.protocol.frames import RecordKind
from tests.ending import FOR_EVER
from tests.unit.connection.ends import LINK, PATIENCE, World, wait_for


class Things:
    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.counted = 0
        self.released = threading.Event()

    def hold(self) -> None:
        """Return when the test says so."""
        self.released.wait(FOR_EVER)

    def get(self) -> int:
        return self.number

    def wait(self) -> str:
        """The same, with an answer."""
        self.hold()
        return "waited"

    def fail(self) -> None:
        raise ValueError("wrong value")

    def odd(self) -> None:
        raise OddError("odd")

    def result(self) -> object:
        return object()

    def count(self) -> None:
        self.counted += 1

    def same(self, other: object) -> bool:
        return other is self

    def big(self, size: int) -> bytes:
        return bytes(size)

    def length(self, data: bytes) -> int:
        return len(data)


class OddError(Exception):
    pass


METHODS = ["get", "wait", "hold", "fail", "odd", "result", "count", "same", "big", "length"]


def test_row_66_scopes_creation_and_deletion_over_a_connection(world: World) -> None:
    server, client = world.pair()
    server.register("things", Things(23), METHODS)
    server.factory("thing", Things, METHODS)
    (there,) = server.connections
    there.register(Things(123), METHODS, 7)
    assert client.remote("things").get() == 23
    assert client.remote(7).get() == 123
    made = client.create("thing", 5)
    assert made.get() == 5
    assert server.statistics["objects"] == 2
    client.delete(made)
    assert server.statistics["objects"] == 1
    with pytest.raises(AeronSparkError):
        made.get()


def test_row_67_deadlines_over_a_connection(world: World) -> None:
    server, client = world.pair()
    things = Things()
    server.register("things", things, METHODS)
    proxy = client.remote("things")
    with pytest.raises(WaitTimeout):
        proxy.with_timeout(0.1).wait()
    with ThreadPoolExecutor(1) as pool:
        begun = server.statistics["running"]
        without_deadline = pool.submit(proxy.with_timeout(0).wait)
        wait_for(lambda: server.statistics["running"] > begun)
        things.released.set()
        assert without_deadline.result(PATIENCE) == "waited"
    assert proxy.with_timeout(PATIENCE).wait() == "waited"
    wait_for(lambda: server.statistics["running"] == 0)
    assert client.connection.held["calls"] == 0


def test_row_68_exceptions_over_a_connection(world: World) -> None:
    server, client = world.pair()
    server.register("things", Things(), METHODS)
    with pytest.raises(RemoteError, match="wrong value") as listed:
        client.remote("things").fail()
    assert listed.value.code == "ValueError"
    with pytest.raises(RemoteError, match="odd"):
        client.remote("things").odd()
    with pytest.raises(RemoteError):
        client.remote("things").result()


def test_row_69_one_way_calls_return_at_once_over_a_connection(world: World) -> None:
    server, client = world.pair()
    things = Things()
    server.register("things", things, METHODS)
    assert client.remote("things").oneway.hold() is None  # it returns, and the call does not
    assert not things.released.is_set()
    things.released.set()
    client.remote("things").oneway.fail()
    wait_for(lambda: any(isinstance(error, ValueError) for error in world.heard[server].errors))


def test_row_70_references_and_equal_numbers_over_a_connection(world: World) -> None:
    server, client = world.pair()
    other = world.client(source="192.0.2.8:4000")
    wait_for(lambda: len(server.connections) == 2)
    server.register("things", Things(1), METHODS)
    proxy = client.remote("things")
    assert proxy.same(proxy) is True
    first = next(one for one in server.connections if one.id == client.connection.id)
    second = next(one for one in server.connections if one.id == other.connection.id)
    first.register(Things(4), METHODS, 40_000)
    second.register(Things(5), METHODS, 40_000)
    assert [client.remote(40_000).get(), other.remote(40_000).get()] == [4, 5]
    with pytest.raises(AeronSparkError):
        other.remote("things").same(proxy)


def test_row_71_a_forged_answer_of_another_connection_changes_nothing_over_a_connection(world: World) -> None:
    server, client = world.pair()
    other = world.client(source="192.0.2.8:4000")
    things = Things()
    server.register("things", things, METHODS)
    results: list[str] = []
    waiting = threading.Thread(target=lambda: results.append(client.remote("things").wait()))
    waiting.start()
    wait_for(lambda: client.connection.held["calls"])
    for number in range(1, 20):
        other.connection.sender.reply(RecordKind.RETURN, number.to_bytes(8, "big") + b"\x00\xa6forged")
    other.ping()  # behind them: the server has had them all
    assert results == []
    things.released.set()
    waiting.join(PATIENCE)
    assert results == ["waited"]


def test_row_72_calls_all_arrive_over_a_connection(world: World) -> None:
    server, client = world.pair()
    things = Things()
    server.register("things", things, METHODS)
    proxy = client.remote("things")
    for _ in range(300):
        proxy.count()
    assert things.counted == 300
    with ThreadPoolExecutor(50) as pool:
        assert list(pool.map(lambda _: proxy.with_timeout(30).get(), range(10_000))) == [0] * 10_000
    assert client.connection.held["calls"] == 0
    wait_for(lambda: server.statistics["running"] == 0)


def test_large_arguments_and_results_go_as_streams(world: World) -> None:
    server, client = world.pair()
    server.register("things", Things(), METHODS)
    assert len(client.remote("things").with_timeout(20).big(1_000_000)) == 1_000_000
    assert client.remote("things").with_timeout(20).length(bytes(1_000_000)) == 1_000_000


def test_a_listener_may_get_a_large_answer_of_its_own_peer(world: World) -> None:
    server, client = world.pair()
    client.offer(Things(), METHODS, 9)
    sizes: list[int] = []
    server.on_message(int, lambda c, size: sizes.append(len(c.remote(9).with_timeout(20).big(size))))
    client.send(500_000, acknowledge=True)
    assert sizes == [500_000]


class Seen(msgspec.Struct):
    """A message type of the program that notes which threads decode it."""

    number: int
    decoded_by: ClassVar[list[str]] = []

    def __post_init__(self) -> None:
        Seen.decoded_by.append(threading.current_thread().name)


def test_arguments_are_decoded_by_a_worker_and_a_result_by_the_thread_that_called(world: World) -> None:
    server, client = world.pair()
    for end in (server, client):
        end.register_type(Seen, 100)

    class Echo:
        def back(self, value: object) -> object:
            return value

    server.register("echo", Echo(), ["back"])
    seen = Seen(1)
    Seen.decoded_by.clear()
    assert client.remote("echo").with_timeout(PATIENCE).back(seen) == seen
    by_worker, by_caller = Seen.decoded_by
    assert by_worker.startswith("aeron-spark-server-worker")
    assert by_caller == threading.current_thread().name


def test_calls_whose_bytes_are_too_many_hold_up_their_caller_and_all_of_them_run(world: World) -> None:
    server, client = world.pair(
        session=replace(LINK.session, buffer_bytes=200_000), max_running_bytes=100_000, send_seconds=0.3
    )
    released, sizes = threading.Event(), list[int]()

    class Slow:
        def take(self, data: bytes) -> None:
            released.wait(FOR_EVER)
            sizes.append(len(data))

    server.register("slow", Slow(), ["take"])
    proxy = client.remote("slow").oneway
    sent = 0

    def flood() -> None:
        nonlocal sent
        for _ in range(1_000):
            proxy.take(bytes(1_000))
            sent += 1

    with pytest.raises(WaitTimeout, match="took no more"):
        flood()
    assert sent < 500  # calls that may run, and some more that the caller's buffer and a frame on its way hold
    client.ping()
    released.set()
    wait_for(lambda: len(sizes) == sent)
    client.remote("slow").with_timeout(PATIENCE).take(b"")
    wait_for(lambda: server.statistics["running"] == 0)


def test_one_way_calls_run_though_their_caller_closes_at_once(world: World) -> None:
    server = world.server()
    things = Things()
    registered = []
    server.on_connect(lambda connection: registered.append(connection.register(things, METHODS, 7)))
    for number in range(20):
        client = world.client(source=f"192.0.2.9:{5000 + number}")
        wait_for(lambda so_far=number + 1: len(registered) == so_far)  # a call can be faster than the listener
        client.remote(7).with_timeout(PATIENCE).get()
        client.remote(7).oneway.count()
        client.close()
        wait_for(lambda so_far=number + 1: things.counted == so_far)


def test_calls_that_wait_hear_of_the_end(world: World) -> None:
    server, client = world.pair()
    things = Things()
    server.register("things", things, METHODS)
    raised: list[BaseException] = []

    def call() -> None:
        try:
            client.remote("things").with_timeout(0).hold()
        except AeronSparkError as error:
            raised.append(error)

    waiting = threading.Thread(target=call)
    waiting.start()
    wait_for(lambda: server.statistics["running"])
    client.close()
    waiting.join(PATIENCE)
    things.released.set()
    assert raised
    with pytest.raises((UsageError, AeronSparkError)):
        client.remote("things")

"""Remote calls between a server and a client."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import ClassVar

import msgspec
import pytest

from aeron_spark.errors import AeronSparkError, RemoteError, UsageError, WaitTimeout
from aeron_spark.protocol.frames import RecordKind
from tests.ending import LONG_TIMEOUT_S
from tests.unit.connection.endpoints import LINK, TIMEOUT_S, World, wait_for


class Things:
    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.counted = 0
        self.released = threading.Event()

    def hold(self) -> None:
        """Return when the test sets ``released``."""
        self.released.wait(LONG_TIMEOUT_S)

    def get(self) -> int:
        return self.number

    def wait(self) -> str:
        """Return a text when the test sets ``released``."""
        self.hold()
        return "waited"

    def fail(self) -> None:
        raise ValueError("wrong value")

    def odd(self) -> None:
        raise UnregisteredError("odd")

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


class UnregisteredError(Exception):
    pass


METHODS = ["get", "wait", "hold", "fail", "odd", "result", "count", "same", "big", "length"]


def test_row_66_objects_of_each_scope_are_called_created_and_deleted(world: World) -> None:
    server, client = world.pair()
    server.register("things", Things(23), METHODS)
    server.factory("thing", Things, METHODS)
    (connection,) = server.connections
    connection.register(Things(123), METHODS, 7)
    assert client.remote("things").get() == 23
    assert client.remote(7).get() == 123
    made = client.create("thing", 5)
    assert made.get() == 5
    assert server.statistics["objects"] == 2
    client.delete(made)
    assert server.statistics["objects"] == 1
    with pytest.raises(AeronSparkError):
        made.get()


def test_row_67_a_call_ends_at_its_deadline(world: World) -> None:
    server, client = world.pair()
    things = Things()
    server.register("things", things, METHODS)
    proxy = client.remote("things")
    with pytest.raises(WaitTimeout):
        proxy.with_timeout(0.1).wait()
    with ThreadPoolExecutor(1) as pool:
        started = server.statistics["running"]
        without_deadline = pool.submit(proxy.with_timeout(0).wait)
        wait_for(lambda: server.statistics["running"] > started)
        things.released.set()
        assert without_deadline.result(TIMEOUT_S) == "waited"
    assert proxy.with_timeout(TIMEOUT_S).wait() == "waited"
    wait_for(lambda: server.statistics["running"] == 0)
    assert client.connection.usage["calls"] == 0


def test_row_68_exceptions_of_a_call_reach_its_caller(world: World) -> None:
    server, client = world.pair()
    server.register("things", Things(), METHODS)
    with pytest.raises(RemoteError, match="wrong value") as listed:
        client.remote("things").fail()
    assert listed.value.code == "ValueError"
    with pytest.raises(RemoteError, match="odd"):
        client.remote("things").odd()
    with pytest.raises(RemoteError):
        client.remote("things").result()


def test_row_69_one_way_calls_return_at_once(world: World) -> None:
    server, client = world.pair()
    things = Things()
    server.register("things", things, METHODS)
    assert client.remote("things").oneway.hold() is None  # it returns before the call does
    assert not things.released.is_set()
    things.released.set()
    client.remote("things").oneway.fail()
    wait_for(lambda: any(isinstance(error, ValueError) for error in world.recorded[server].errors))


def test_row_70_references_and_numbers_belong_to_their_connection(world: World) -> None:
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


def test_row_71_a_forged_response_of_another_connection_has_no_effect(world: World) -> None:
    server, client = world.pair()
    other = world.client(source="192.0.2.8:4000")
    things = Things()
    server.register("things", things, METHODS)
    results: list[str] = []
    waiting = threading.Thread(target=lambda: results.append(client.remote("things").wait()))
    waiting.start()
    wait_for(lambda: client.connection.usage["calls"])
    for number in range(1, 20):
        other.connection.sender.reply(RecordKind.RETURN, number.to_bytes(8, "big") + b"\x00\xa6forged")
    other.ping()  # the server has handled them when it responds
    assert results == []
    things.released.set()
    waiting.join(TIMEOUT_S)
    assert results == ["waited"]


def test_row_72_ten_thousand_calls_all_get_their_responses(world: World) -> None:
    server, client = world.pair()
    things = Things()
    server.register("things", things, METHODS)
    proxy = client.remote("things")
    for _ in range(300):
        proxy.count()
    assert things.counted == 300
    with ThreadPoolExecutor(50) as pool:
        assert list(pool.map(lambda _: proxy.with_timeout(30).get(), range(10_000))) == [0] * 10_000
    assert client.connection.usage["calls"] == 0
    wait_for(lambda: server.statistics["running"] == 0)


def test_large_arguments_and_results_are_sent_as_transfers(world: World) -> None:
    server, client = world.pair()
    server.register("things", Things(), METHODS)
    assert len(client.remote("things").with_timeout(20).big(1_000_000)) == 1_000_000
    assert client.remote("things").with_timeout(20).length(bytes(1_000_000)) == 1_000_000


def test_a_listener_can_get_a_large_response_from_its_peer(world: World) -> None:
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


def test_a_worker_decodes_arguments_and_the_calling_thread_decodes_the_result(world: World) -> None:
    server, client = world.pair()
    for end in (server, client):
        end.register_type(Seen, 100)

    class Echo:
        def back(self, value: object) -> object:
            return value

    server.register("echo", Echo(), ["back"])
    seen = Seen(1)
    Seen.decoded_by.clear()
    assert client.remote("echo").with_timeout(TIMEOUT_S).back(seen) == seen
    by_worker, by_caller = Seen.decoded_by
    assert by_worker.startswith("aeron-spark-server-worker")
    assert by_caller == threading.current_thread().name


def test_calls_with_too_many_bytes_make_their_caller_wait_and_all_run(world: World) -> None:
    server, client = world.pair(
        session=replace(LINK.session, buffer_bytes=200_000), max_running_bytes=100_000, send_seconds=0.3
    )
    released, sizes = threading.Event(), list[int]()

    class Slow:
        def take(self, data: bytes) -> None:
            released.wait(LONG_TIMEOUT_S)
            sizes.append(len(data))

    server.register("slow", Slow(), ["take"])
    proxy = client.remote("slow").oneway
    sent = 0

    def flood() -> None:
        nonlocal sent
        for _ in range(1_000):
            proxy.take(bytes(1_000))
            sent += 1

    with pytest.raises(WaitTimeout, match="did not accept a message before the timeout"):
        flood()
    assert sent < 500  # those that may run, and those in the caller's buffer and in one frame
    client.ping()
    released.set()
    wait_for(lambda: len(sizes) == sent)
    client.remote("slow").with_timeout(TIMEOUT_S).take(b"")
    wait_for(lambda: server.statistics["running"] == 0)


def test_one_way_calls_run_although_their_caller_closes_at_once(world: World) -> None:
    server = world.server()
    things = Things()
    registered = []
    server.on_connect(lambda connection: registered.append(connection.register(things, METHODS, 7)))
    for number in range(20):
        client = world.client(source=f"192.0.2.9:{5000 + number}")
        wait_for(lambda so_far=number + 1: len(registered) == so_far)  # a call can be faster than the listener
        client.remote(7).with_timeout(TIMEOUT_S).get()
        client.remote(7).oneway.count()
        client.close()
        wait_for(lambda so_far=number + 1: things.counted == so_far)


def test_close_ends_calls_that_wait(world: World) -> None:
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
    waiting.join(TIMEOUT_S)
    things.released.set()
    assert raised
    with pytest.raises((UsageError, AeronSparkError)):
        client.remote("things")


def test_an_endpoint_is_not_idle_while_a_call_waits_because_the_call_has_a_deadline(world: World) -> None:
    server, client = world.pair()
    things = Things()
    server.register("things", things, ["wait"])
    runtime = client._runtime
    wait_for(runtime._is_idle, "the client to be idle")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.remote("things").wait)
        try:
            wait_for(lambda: client.connection.is_awaiting and not runtime._touched, "the call to wait")
            assert not runtime._is_idle()
        finally:
            things.released.set()
        assert waiting.result(TIMEOUT_S) == "waited"
    wait_for(runtime._is_idle, "the client to be idle again")

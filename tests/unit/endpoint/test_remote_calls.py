"""Remote calls between a server and a client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar

import msgspec
import pytest

from aeron_spark.endpoint import peer_calls
from aeron_spark.endpoint.connection import Connection
from aeron_spark.endpoint.peer_calls import TURN_REQUESTS
from aeron_spark.errors import (
    AeronSparkError,
    EndedError,
    OptionError,
    RefusedError,
    RemoteError,
    Retry,
    UsageError,
    WaitTimeout,
)
from aeron_spark.protocol.frames import RecordKind
from aeron_spark.protocol.rpc_messages import Call
from tests.ending import LONG_TIMEOUT_S
from tests.internals import core_of
from tests.unit.endpoint.endpoints import TIMEOUT_S, World, server_options, wait_for


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


class OfferingConnection(Connection):
    """Has an object for calls as soon as it exists, and adds to what its base class does."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.register(Things(self.id), METHODS, 7)

    def register(self, value: object, methods: Iterable[str], number: int | None = None) -> int:
        self.data["registered"] = number
        return super().register(value, methods, number)


def test_a_connection_class_may_register_objects_in_its_constructor(world: World) -> None:
    server = world.server(connection_class=OfferingConnection)
    client = world.client()
    assert client.remote(7).get() == client.connection.id
    (connection,) = server.connections
    assert isinstance(connection, OfferingConnection)
    assert connection.data == {"registered": 7}


@pytest.mark.threads
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
    assert core_of(client.connection).usage["calls"] == 0


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


def test_a_caller_gets_the_exception_although_its_text_cannot_be_logged(world: World) -> None:
    class UnreadableError(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    class Odd:
        def fail(self) -> None:
            raise UnreadableError

    server, client = world.pair()
    server.register("odd", Odd(), ["fail"])
    with pytest.raises(RemoteError, match="the exception has no text"):
        client.remote("odd").with_timeout(TIMEOUT_S).fail()
    wait_for(lambda: any(isinstance(error, ValueError) for error in world.recorded[server].errors))


def test_calls_run_after_many_whose_method_could_not_be_found(world: World) -> None:
    class Odd:
        is_broken = False

        @property
        def get(self) -> Callable[[], int]:
            if self.is_broken:
                raise ZeroDivisionError
            return lambda: 1

    server, client = world.pair()
    odd = Odd()
    server.register("odd", odd, ["get"])
    odd.is_broken = True
    for _ in range(10 * TURN_REQUESTS):  # a worker takes some of them
        client.remote("odd").oneway.get()
    errors = world.recorded[server].errors
    wait_for(lambda: sum(isinstance(error, ZeroDivisionError) for error in list(errors)) == 10 * TURN_REQUESTS)
    odd.is_broken = False
    assert client.remote("odd").with_timeout(TIMEOUT_S).get() == 1


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


@pytest.mark.threads
def test_row_71_a_forged_response_of_another_connection_has_no_effect(world: World) -> None:
    server, client = world.pair()
    other = world.client(source="192.0.2.8:4000")
    things = Things()
    server.register("things", things, METHODS)
    results: list[str] = []
    waiting = threading.Thread(target=lambda: results.append(client.remote("things").wait()))
    waiting.start()
    wait_for(lambda: core_of(client.connection).usage["calls"])
    for number in range(1, 20):
        core_of(other.connection).sender.reply(RecordKind.RETURN, number.to_bytes(8, "big") + b"\x00\xa6forged")
    other.ping()  # the server has handled them when it responds
    assert results == []
    things.released.set()
    waiting.join(TIMEOUT_S)
    assert results == ["waited"]


@pytest.mark.threads
@pytest.mark.slow
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
    assert core_of(client.connection).usage["calls"] == 0
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


@pytest.mark.threads
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


@pytest.mark.threads
def test_calls_with_too_many_bytes_make_their_caller_wait_and_all_run(world: World) -> None:
    server, client = world.pair(buffer_bytes=200_000, call_bytes=100_000, send_timeout=0.3)
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


@pytest.mark.threads
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


class Later:
    """Its method ``get`` returns a future, which the test ends; ``now`` returns at once."""

    def __init__(self) -> None:
        self.futures: list[Future[object]] = []

    def get(self, data: bytes = b"") -> Future[object]:
        self.futures.append(Future())
        return self.futures[-1]

    def done(self) -> Future[str]:
        future = Future[str]()
        future.set_result("done")
        return future

    def now(self) -> str:
        return "now"


def test_an_endpoint_is_idle_during_a_call_which_still_ends_at_its_deadline(world: World) -> None:
    server, client = world.pair()
    server.register("later", Later(), ["get"])
    loop = client._endpoint.loop
    pending = core_of(client.connection).rpc.begin(Call("later", "get", (), {}), 10.0)
    wait_for(loop.is_idle, "the client to be idle during the call", 5.0)
    began = world.clock()
    with pytest.raises(WaitTimeout, match=r"waited 10 s for the response to the call of get\(\) of 'later'"):
        pending.result()
    assert world.clock() - began < 10.1
    assert loop.is_idle()
    assert core_of(client.connection).usage["calls"] == 0


def test_a_call_that_waits_for_room_at_its_deadline_is_not_sent(world: World) -> None:
    server, client = world.pair(buffer_bytes=200_000)
    received, later = list[object](), Later()
    server.on_message(object, lambda _, message: received.append(message))
    server.register("later", later, ["get"])
    world.network.cut()
    wait_for(lambda: not client.connected, "the loss of the link")
    client.send_many([bytes(1000)] * 176)  # with 128 bytes for each record, the buffer is full
    with pytest.raises(WaitTimeout, match="did not accept a message before the timeout: the peer is not connected"):
        client.remote("later").with_timeout(1.0).get(bytes(1000))
    assert core_of(client.connection).usage["calls"] == 0
    world.network.heal()
    wait_for(lambda: client.connected, "the client to reconnect")
    client.send("last", acknowledge=True)
    assert len(received) == 177
    assert later.futures == []


LATER_METHODS = ["get", "done", "now"]


@pytest.mark.threads
def test_a_method_that_returns_a_future_answers_with_its_result_and_occupies_no_worker(world: World) -> None:
    server, client = world.pair(workers=1)
    later = Later()
    server.register("later", later, LATER_METHODS)
    proxy = client.remote("later").with_timeout(TIMEOUT_S)
    with ThreadPoolExecutor(5) as pool:
        calls = [pool.submit(proxy.get) for _ in range(5)]
        wait_for(lambda: len(later.futures) == 5)
        assert (proxy.now(), proxy.done()) == ("now", "done")
        wait_for(lambda: server.statistics["running"] == 5)
        for number, future in enumerate(later.futures):
            future.set_result(number)
        assert sorted(call.result(TIMEOUT_S) for call in calls) == list(range(5))
    wait_for(lambda: server.statistics["running"] == 0)


@pytest.mark.threads
def test_the_error_of_a_future_reaches_the_caller_as_that_of_a_method_does(world: World) -> None:
    server, client = world.pair()
    later = Later()
    server.register("later", later, LATER_METHODS)
    ends = (
        (lambda future: future.set_exception(ValueError("wrong value")), "ValueError", "wrong value"),
        (lambda future: future.set_result(object()), "bad-result", "object"),
        (lambda future: future.cancel(), "EndedError", "the call was cancelled"),
    )
    with ThreadPoolExecutor(1) as pool:
        for end, code, text in ends:
            call = pool.submit(client.remote("later").with_timeout(TIMEOUT_S).get)
            wait_for(lambda: later.futures)
            end(later.futures.pop())
            with pytest.raises(RemoteError, match=text) as raised:
                call.result(TIMEOUT_S)
            assert raised.value.code == code
    assert isinstance(raised.value.raised, EndedError)
    wait_for(lambda: server.statistics["running"] == 0)
    assert core_of(client.connection).rpc.late == 0


@pytest.mark.threads
def test_a_worker_sends_the_response_when_the_event_loop_ends_a_future(world: World) -> None:
    """A response that is a transfer waits for room, which the event loop must not do."""
    server, client = world.pair(buffer_bytes=200_000)
    later = Later()
    server.register("later", later, LATER_METHODS)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.remote("later").with_timeout(TIMEOUT_S).get)
        wait_for(lambda: later.futures)
        server._endpoint.loop.run_soon(lambda: later.futures[0].set_result(bytes(1_000_000)))
        assert len(call.result(TIMEOUT_S)) == 1_000_000


def test_one_way_calls_with_futures_run_until_their_futures_are_done(world: World) -> None:
    server, client = world.pair()
    later = Later()
    server.register("later", later, LATER_METHODS)
    for _ in range(2):
        client.remote("later").oneway.get()
    wait_for(lambda: len(later.futures) == 2)
    assert server.statistics["running"] == 2
    later.futures[0].set_result(None)
    wait_for(lambda: server.statistics["running"] == 1)
    later.futures[1].set_exception(ValueError("wrong value"))
    wait_for(lambda: any(isinstance(error, ValueError) for error in world.recorded[server].errors))
    wait_for(lambda: server.statistics["running"] == 0)


@pytest.mark.threads
def test_a_large_call_beyond_the_limit_of_bytes_is_refused_before_its_bytes_arrive(world: World) -> None:
    server, client = world.pair(call_bytes=300_000)
    later = Later()
    server.register("later", later, LATER_METHODS)
    proxy = client.remote("later").with_timeout(TIMEOUT_S)
    (connection,) = server.connections
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(proxy.get, bytes(200_000))
        wait_for(lambda: len(later.futures) == 1)
        with pytest.raises(RefusedError, match=r"have 200\d\d\d bytes, and this one 200\d\d\d.*callBytes") as refused:
            proxy.get(bytes(200_000))
        assert (refused.value.reason, refused.value.retry) == ("busy", Retry.SOON)
        assert core_of(connection).usage["stream_bytes"] == 0
        assert proxy.now() == "now"  # a small one has room
        later.futures[0].set_result(None)
        assert call.result(TIMEOUT_S) is None
    with pytest.raises(RefusedError, match="and the limit is 300000") as refused:
        proxy.get(bytes(400_000))
    assert (refused.value.reason, refused.value.retry) == ("limit", Retry.NEVER)


def test_arguments_of_a_call_have_a_limit_of_levels_and_of_entries(world: World) -> None:
    _, client = world.pair()
    proxy = client.remote("things")
    nested: list[object] = []
    for _ in range(40):
        nested = [nested]
    with pytest.raises(OptionError, match="nested deeper than 32 levels"):
        proxy.same(nested)
    with pytest.raises(OptionError, match="more than 10000 entries"):
        proxy.same([0] * 10_001)


def test_the_end_of_a_connection_cancels_the_futures_of_its_calls(world: World) -> None:
    server, client = world.pair()
    later = Later()
    server.register("later", later, LATER_METHODS)
    (connection,) = server.connections
    for _ in range(3):
        client.remote("later").oneway.get()
    wait_for(lambda: len(later.futures) == 3)
    assert later.futures[0].set_running_or_notify_cancel()  # cannot be cancelled any more
    client.close()
    wait_for(lambda: [future.cancelled() for future in later.futures] == [False, True, True])
    later.futures[0].set_result("late")
    assert core_of(connection).usage["running"] == 0
    assert core_of(connection).peer_calls._unfinished == {}


@pytest.mark.threads
def test_a_future_that_a_method_returns_after_the_end_of_its_connection_is_cancelled(world: World) -> None:
    server, client = world.pair()
    future, released, is_running = Future[None](), threading.Event(), threading.Event()

    class Slow:
        def get(self) -> Future[None]:
            is_running.set()
            released.wait(LONG_TIMEOUT_S)
            return future

    server.register("slow", Slow(), ["get"])
    (connection,) = server.connections
    client.remote("slow").oneway.get()
    assert is_running.wait(TIMEOUT_S)
    client.close()
    wait_for(lambda: connection.closed and core_of(connection).peer_calls._is_closed)
    released.set()
    wait_for(future.cancelled)
    assert core_of(connection).usage["running"] == 0


RESPONSES: dict[str, Any] = {
    "bytes": bytes(11_000),
    "text": "x" * 11_000,
    "list": [bytes(4_000)] * 3,
    "map": {"a": "x" * 6_000, "b": "y" * 6_000},
    "numbers": list(range(60_000)),
}


class Answers:
    def answer(self, kind: str) -> object:
        return RESPONSES.get(kind, bytes(9_000))


@pytest.mark.parametrize("kind", RESPONSES)
def test_a_response_of_more_than_a_quarter_of_the_memory_limit_is_refused(
    world: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a response of 700 MB took 2.3 GB in a server with a memoryLimit of 512 MiB."""
    encoded: list[object] = []
    encode = peer_calls.encode_value

    def encode_value(call_id: int, value: object, *given: Any) -> bytes:
        encoded.append(value)
        return encode(call_id, value, *given)

    monkeypatch.setattr(peer_calls, "encode_value", encode_value)
    server = world.server(server_options(memory_limit=40_000))
    server.register("answers", Answers(), ["answer"])
    answers = world.client().remote("answers")
    with pytest.raises(RefusedError, match="a quarter of memoryLimit is 10000 bytes") as refused:
        answers.answer(kind)
    assert refused.value.reason == "limit"
    assert len(encoded) == (kind == "numbers"), "no copy of texts and bytes is made"
    assert answers.answer("small") == bytes(9_000), "the connection goes on"

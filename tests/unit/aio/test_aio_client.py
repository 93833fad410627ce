"""The client for asyncio: messages, calls, pings, files, its state, and the event loop that it belongs to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from aeron_spark import aio
from aeron_spark.aio.own import OwnLoop
from aeron_spark.endpoint.spill import ReceivedFile
from aeron_spark.errors import (
    ConnectError,
    EndedError,
    IdentityError,
    OptionError,
    RemoteError,
    SessionLost,
    UsageError,
    WaitTimeout,
)
from aeron_spark.protocol.rpc_objects import Proxy
from tests.internals import core_of
from tests.message_server import MessageServer
from tests.unit.endpoint.endpoints import (
    ADDRESS,
    TIMEOUT_S,
    World,
    kept_for,
    quick_client,
    server_options,
    wait_for,
)

LARGE: Final = 300_000  # bytes, more than one record takes


class Catalog:
    """An object of the server's program."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.answer: Future[str] = Future()
        self.ended = threading.Event()

    def describe(self, name: str, *, columns: int = 1) -> dict[str, object]:
        return {"name": name, "columns": columns}

    def length(self, data: bytes) -> int:
        return len(data)

    def fail(self) -> None:
        raise LookupError("no such table")

    def later(self) -> Future[str]:
        self.begun.set()
        return self.answer

    def note(self) -> None:
        self.ended.set()


METHODS: Final = ("describe", "length", "fail", "later", "note")


class Table:
    def rows(self) -> int:
        return 7


class Peer:
    """A server with a catalog, which records what it receives."""

    def __init__(self, world: World, **changes: Any) -> None:
        self.received: list[object] = []
        self.catalog = Catalog()
        self.server = self._serve(world, changes)

    def _serve(self, world: World, changes: dict[str, Any]) -> MessageServer:
        server = world.server(server_options(**changes), start=False)
        server.on_message(object, lambda _, message: self.received.append(message))
        server.register("catalog", self.catalog, METHODS)
        server.factory("table", Table, ["rows"])
        server.start([ADDRESS])
        return server


def opening(world: World, **changes: Any) -> aio.Client:
    """Return a client that is not open."""
    given = quick_client(**changes)
    return aio.Client(lambda deadline: world.client_endpoint(given), TIMEOUT_S)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, TIMEOUT_S))


def test_messages_calls_and_pings_are_awaited(world: World) -> None:
    peer = Peer(world)

    async def main() -> None:
        async with opening(world) as client:
            assert client.state == "connected"
            await client.send({"n": 1})
            await client.send("two", acknowledge=True)
            await client.send_many([3, b"four"])
            catalog = client.remote("catalog")
            assert await catalog.describe("prices", columns=2) == {"name": "prices", "columns": 2}
            await catalog.oneway.note()
            assert 0 < await client.ping() < TIMEOUT_S
            table = await client.create("table")
            assert await table.rows() == 7
            await client.delete(table)
            with pytest.raises(EndedError):
                await table.rows()
        assert client.state == "closed"

    run(main())
    assert peer.received == [{"n": 1}, "two", 3, b"four"]
    assert peer.catalog.ended.wait(TIMEOUT_S)


def test_what_is_too_large_for_a_record_is_sent_by_a_thread(world: World, tmp_path: Path) -> None:
    peer = Peer(world)
    file = tmp_path / "file"
    file.write_bytes(bytes(1000))

    async def main() -> None:
        async with opening(world) as client:
            await client.send(bytes(LARGE), acknowledge=True)
            assert await client.remote("catalog").length(bytes(LARGE)) == LARGE
            await client.send_file(file)
            await client.send("last", acknowledge=True)

    run(main())
    large, received, last = peer.received
    assert large == bytes(LARGE)
    assert isinstance(received, ReceivedFile)
    assert last == "last"


def test_errors_are_those_of_the_client_without_asyncio(world: World) -> None:
    Peer(world)

    async def main() -> None:
        async with opening(world) as client:
            with pytest.raises(RemoteError, match="no such table"):
                await client.remote("catalog").fail()
            with pytest.raises(WaitTimeout, match="for the response to the call of later"):
                await client.remote("catalog").with_timeout(0.05).later()
            with pytest.raises(OptionError):
                await client.send(object())
            with pytest.raises(AttributeError, match="private names"):
                client.remote("catalog")._private  # noqa: B018

    run(main())


def test_a_thousand_sends_that_wait_for_room_need_no_threads(world: World) -> None:
    both: dict[str, Any] = {"buffer_bytes": 200_000, "send_timeout": TIMEOUT_S}
    peer = Peer(world, **both)

    async def main() -> None:
        async with opening(world, **both) as client:
            world.network.cut()
            await until(lambda: client.state == "reconnecting")
            before = threading.active_count()
            tasks = [
                asyncio.create_task(client.send(number.to_bytes(4, "big") + bytes(1000))) for number in range(1200)
            ]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert 1000 < sum(not task.done() for task in tasks) < 1200
            assert threading.active_count() <= before + 1
            world.network.heal()
            await asyncio.gather(*tasks)
            await client.send("last", acknowledge=True)

    run(main())
    assert [int.from_bytes(one[:4], "big") for one in peer.received[:-1] if isinstance(one, bytes)] == [*range(1200)]


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def fill(client: aio.Client) -> int:
    """Send until a message is not accepted at once; return the number of accepted ones."""
    for accepted in range(1000):
        try:
            await client.send(bytes(1000), timeout=0)
        except WaitTimeout:
            return accepted
    raise AssertionError("the buffer is not bounded")


def test_a_send_that_ends_its_wait_for_room_is_not_sent(world: World) -> None:
    both: dict[str, Any] = {"buffer_bytes": 200_000}
    peer = Peer(world, **both)

    async def main() -> None:
        async with opening(world, **both) as client:
            world.network.cut()
            await until(lambda: client.state == "reconnecting")
            accepted = await fill(client)
            with pytest.raises(WaitTimeout, match="the peer is not connected"):
                await client.send("late" * 300, timeout=0.01)
            task = asyncio.create_task(client.send("cancelled" * 300))
            call = asyncio.create_task(client.remote("catalog").with_timeout(TIMEOUT_S).describe("x" * 1000))
            await asyncio.sleep(0.01)
            task.cancel()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(asyncio.CancelledError):
                await call
            world.network.heal()
            await client.send("last", acknowledge=True)
            assert len(peer.received) == accepted + 1

    run(main())
    assert peer.received[-1] == "last"


def test_a_cancelled_call_runs_at_the_server_and_leaves_nothing(world: World) -> None:
    peer = Peer(world)

    async def main() -> None:
        async with opening(world) as client:
            call = asyncio.create_task(client.remote("catalog").with_timeout(0).later())
            await until(peer.catalog.begun.is_set)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert client._endpoint is not None
            assert client._endpoint.require_connection().usage["calls"] == 0
            peer.catalog.answer.set_result("late")
            await client.send("after", acknowledge=True)

    run(main())


def test_a_cancelled_send_with_acknowledge_is_delivered(world: World) -> None:
    peer = Peer(world)
    entered, leave = threading.Event(), threading.Event()

    def hold(connection: object, message: object) -> None:
        entered.set()
        leave.wait(TIMEOUT_S)

    peer.server.on_message(str, hold)

    async def main() -> None:
        async with opening(world) as client:
            task = asyncio.create_task(client.send("held", acknowledge=True))
            await until(entered.is_set)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            leave.set()
            await client.send(2, acknowledge=True)
            leave.clear()
            with pytest.raises(WaitTimeout, match="to confirm that its listeners have returned"):
                await client.send("slow", acknowledge=True, timeout=0.05)
            leave.set()

    run(main())
    assert peer.received[:2] == ["held", 2]


def test_listeners_run_in_the_event_loop_and_may_be_coroutines(world: World) -> None:
    peer = Peer(world)
    threads, got = set[str](), list[object]()

    async def main() -> None:
        client = opening(world)

        @client.on_connect
        def connected(connection: object) -> None:
            threads.add(threading.current_thread().name)
            got.append("connected")

        async def receive(message: object) -> None:
            await asyncio.sleep(0)
            threads.add(threading.current_thread().name)
            got.append(message)

        client.on_message(object, receive)
        async with client:
            client.on_message(int, got.append)
            await until(lambda: peer.server.connections)
            send = partial(peer.server.connections[0].send, 5, acknowledge=True)
            await asyncio.get_running_loop().run_in_executor(None, send)
            await until(lambda: "connected" in got)

    run(main())
    assert sorted(map(str, got)) == ["5", "5", "connected"]
    assert threads == {threading.current_thread().name}


def test_a_listener_that_raises_is_reported_in_the_event_loop(world: World) -> None:
    peer = Peer(world)
    errors = list[BaseException]()

    async def main() -> None:
        client = opening(world)
        client.on_error(lambda connection, error: errors.append(error))
        client.on_message(object, lambda message: {}[message])
        async with client:
            await until(lambda: peer.server.connections)
            peer.server.connections[0].send(1)
            await until(lambda: errors)

    run(main())
    assert [type(error) for error in errors] == [KeyError]


def test_the_state_and_its_listeners(world: World) -> None:
    both = kept_for(0.3)
    Peer(world, **both)
    events = list[object]()

    async def main() -> None:
        client = opening(world, **both)
        client.on_lost(lambda connection, error: events.append(error))
        client.on_reconnect(lambda connection, resumed: events.append(resumed))
        client.on_stopped(events.append)
        assert (client.state, client.error, client.server_key) == ("closed", None, b"")
        async with client:
            await client.reconnect()
            await until(lambda: events == [True])
            world.network.cut()
            await until(lambda: client.state == "reconnecting")
            await client.send("lost")
            await until(lambda: len(events) == 2)
            assert isinstance(events[1], SessionLost)
            assert events[1].unconfirmed == ("lost",)
            world.network.heal()
            await until(lambda: events[2:] == [False])
            assert len(client.server_key) == 32

    run(main())


def test_a_client_that_cannot_connect_raises_and_leaves_no_thread(world: World) -> None:
    Peer(world)

    async def main() -> None:
        with pytest.raises(IdentityError):
            await opening(world, server_key=bytes(32))
        with pytest.raises(ZeroDivisionError):
            async with aio.Client(lambda deadline: 1 / 0):  # type: ignore[return-value,arg-type]
                pass
        endpoint = world.client_endpoint()
        prepared = aio.Client(lambda deadline: endpoint)
        prepared.register("catalog", Catalog(), ["no such method"])
        with pytest.raises(OptionError):
            await prepared
        assert endpoint.closed
        wrong = aio.Client(lambda deadline: world.client_endpoint(), "5")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await wrong
        await wrong.close()
        await until(lambda: not [one for one in threading.enumerate() if one.name.startswith("aeron-spark-client")])
        waiting = aio.Client(lambda deadline: world.client_endpoint(), wait=False)
        async with waiting:
            await waiting.connect(TIMEOUT_S)
            assert waiting.state == "connected"

    run(main())


def test_a_connect_of_a_client_that_did_not_wait_ends_at_its_timeout(world: World) -> None:
    """Regression: it waited for the attempt that has no deadline."""

    async def main() -> None:
        async with aio.Client(lambda deadline: world.client_endpoint(), wait=False) as client:  # no server listens
            with pytest.raises(WaitTimeout, match="the client goes on to try"):
                await client.connect(0.05)
            assert client.state == "connecting"
            Peer(world)
            await client.connect(TIMEOUT_S)

    run(main())


def test_a_cancelled_connect_closes_the_client(world: World) -> None:
    async def main() -> None:
        client = opening(world)  # no server listens
        task = asyncio.create_task(client.open())
        await until(lambda: client.state == "connecting")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.close()
        assert client.state == "closed"

    run(main())


# The event loop that it belongs to.


class CountedFuture(Future[str]):
    """A future that counts its callbacks."""

    callbacks = 0

    def add_done_callback(self, fn: Callable[[Future[str]], object]) -> None:
        self.callbacks += 1
        super().add_done_callback(fn)


def test_a_program_may_wait_for_one_future_again_and_again() -> None:
    async def main() -> None:
        own_loop, future = OwnLoop(), CountedFuture()
        for _ in range(100):  # such as a task that looks for the next batch with a short timeout
            assert not await own_loop.wait(future, 0.0)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(own_loop.wait(future), 0.0001)
        assert future.callbacks == 1
        waits = [asyncio.create_task(own_loop.wait(future)) for _ in range(3)]
        await asyncio.sleep(0)
        waits[0].cancel()
        threading.Thread(target=future.set_result, args=("batch",)).start()
        assert await asyncio.gather(*waits[1:]) == [True, True]
        assert waits[0].cancelled()
        assert await own_loop.wait(future)

    run(main())


def test_another_event_loop_is_refused(world: World) -> None:
    Peer(world)

    async def main() -> None:
        async with opening(world) as client:
            refusals: list[BaseException] = []

            async def use() -> None:
                await client.send(1)

            def in_thread() -> None:
                try:
                    asyncio.run(use())
                except UsageError as error:
                    refusals.append(error)

            await asyncio.get_running_loop().run_in_executor(None, in_thread)
            (refusal,) = refusals
            assert "belongs to another event loop" in str(refusal)
            assert "run_coroutine_threadsafe" in str(refusal)
            with pytest.raises(UsageError, match="opened before"):
                await client.open()

    run(main())


def test_a_closed_event_loop_is_named(world: World) -> None:
    Peer(world)
    client = opening(world)

    async def leave_open() -> None:
        await client

    run(leave_open())
    calls: list[Callable[[], Awaitable[object]]] = [lambda: client.send(1), client.ping, client.close]
    for call in calls:

        async def use(call: Callable[[], Awaitable[object]] = call) -> None:
            with pytest.raises(UsageError, match="the event loop of this client is closed"):
                await call()

        run(use())
    with pytest.raises(UsageError, match="the event loop of this client is closed"):
        client.remote("catalog")
    client._begin_closing().result(TIMEOUT_S)


def test_a_listener_of_a_closed_event_loop_does_not_keep_its_thread(world: World) -> None:
    peer = Peer(world)
    client = opening(world)
    never = list[object]()

    async def leave_open() -> None:
        client.on_message(object, never.append)
        await client
        await until(lambda: peer.server.connections)

    run(leave_open())
    peer.server.connections[0].send(1)
    wait_for(lambda: not core_of(peer.server.connections[0]).unacknowledged_bytes, "the message to arrive")
    client._begin_closing().result(TIMEOUT_S)
    assert never == []


def test_the_end_of_the_event_loop_ends_a_listener_without_an_error(world: World) -> None:
    peer = Peer(world)
    client, begun = opening(world), threading.Event()

    async def listen(message: object) -> None:
        begun.set()
        await asyncio.sleep(TIMEOUT_S)

    errors: list[BaseException] = []

    async def leave_open() -> None:
        client.on_message(object, listen)
        client.on_error(lambda _, error: errors.append(error))
        await client
        await until(lambda: peer.server.connections)
        peer.server.connections[0].send(1)
        await until(begun.is_set)

    run(leave_open())
    client._begin_closing().result(TIMEOUT_S)
    assert errors == []


def test_before_it_is_open_a_call_is_refused(world: World) -> None:
    async def main() -> None:
        client = opening(world)
        with pytest.raises(UsageError, match="the client is not open"):
            await client.send(1)
        await client.close()

    run(main())


def test_after_a_close_a_call_is_refused(world: World) -> None:
    Peer(world)

    async def main() -> None:
        async with opening(world) as client:
            table = await client.create("table")
        with pytest.raises(EndedError, match="the client is closed"):
            await client.send(1)
        with pytest.raises((EndedError, ConnectError)):
            await table.rows()
        with pytest.raises(EndedError, match="the client is closed"):
            await client.streams()
        await client.close()

    run(main())


def test_a_proxy_is_an_argument_and_a_result(world: World) -> None:
    peer = Peer(world)
    given = list[object]()

    class Shop:
        def take(self, table: object) -> object:
            given.append(table)
            return table

    peer.server.register("shop", Shop(), ["take"])

    async def main() -> None:
        async with opening(world) as client:
            table = await client.create("table")
            back = await client.remote("shop").take(table)
            assert back == table
            assert await back.rows() == 7
            with pytest.raises(UsageError, match="cannot be set remotely"):
                table.name = "x"

    run(main())
    assert isinstance(given[0], Table)
    assert not isinstance(given[0], Proxy)

"""Tests of the memory limit of a server: its largest holders pause, then end, and the others continue."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from aeron_spark.client.client import Client
from aeron_spark.endpoint import usage
from aeron_spark.errors import ConnectError, RefusedError, Retry, WaitTimeout
from aeron_spark.options import ClientOptions, LiveOptions, ServerOptions
from tests.internals import core_of
from tests.message_server import MessageServer
from tests.unit.endpoint.endpoints import TIMEOUT_S, World, client_options, server_options, wait_for


class Slow:
    """Its method ``hold`` holds the bytes of its call until ``end``, which ends later calls, too."""

    def __init__(self) -> None:
        self.futures: list[Future[int]] = []
        self._lock = threading.Lock()
        self._has_ended = False

    def hold(self, data: bytes) -> Future[int]:
        future: Future[int] = Future()
        with self._lock:
            self.futures.append(future)
            if self._has_ended:
                future.set_result(1)
        return future

    def end(self) -> None:
        with self._lock:
            self._has_ended = True
            for future in self.futures:
                future.set_result(1)

    def size(self, data: bytes) -> int:
        return len(data)


@pytest.fixture
def long_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection ends because it is paused for long, which a slow machine makes it."""
    monkeypatch.setattr(usage, "PAUSED_S", 3 * TIMEOUT_S)


def serving(world: World, memory_limit: int) -> tuple[MessageServer, Slow]:
    return serving_with(world, LiveOptions(server_options(memory_limit=memory_limit, queue_bytes=64 << 10)))


def serving_with(world: World, options: LiveOptions) -> tuple[MessageServer, Slow]:
    server = world.server(options)
    slow = Slow()
    server.register("slow", slow, ["hold", "size"])
    return server, slow


def size_of(client: Client, count: int) -> int:
    size: int = client.remote("slow").with_timeout(TIMEOUT_S).size(bytes(count))
    return size


@pytest.mark.threads
@pytest.mark.usefixtures("long_pause")
def test_the_largest_holder_pauses_until_its_memory_is_free(world: World) -> None:
    server, slow = serving(world, 1_000_000)
    greedy, good = world.client(), world.client()
    (greedy_connection,) = [one for one in server.connections if one.id == greedy.connection.id]
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(greedy.remote("slow").with_timeout(TIMEOUT_S).hold, bytes(400_000)) for _ in range(2)]
        wait_for(lambda: server.endpoint.holds.memory.paused == {core_of(greedy_connection)})
        with pytest.raises(WaitTimeout):
            greedy.ping(0.2)
        assert good.ping(TIMEOUT_S) >= 0
        assert size_of(good, 70_000) == 70_000  # less than the rest of the limit, with a copy of each chunk
        slow.end()
        wait_for(lambda: not server.endpoint.holds.memory.paused)
        assert greedy.ping(TIMEOUT_S) >= 0
        assert [call.result(TIMEOUT_S) for call in calls] == [1, 1]
    wait_for(lambda: core_of(greedy_connection).held_bytes == 0)


@pytest.mark.threads
def test_at_the_limit_the_largest_holder_ends_and_connects_again(world: World) -> None:
    server, slow = serving(world, 1_000_000)
    greedy, good = world.client(), world.client()
    first = greedy.connection
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(greedy.remote("slow").with_timeout(TIMEOUT_S).hold, bytes(600_000)) for _ in range(2)]
        for call in calls:
            with pytest.raises((ConnectError, RefusedError), match="memoryLimit"):
                call.result(TIMEOUT_S)
        assert size_of(good, 100_000) == 100_000
    wait_for(lambda: all(future.cancelled() for future in slow.futures))  # by the thread that ends the connection
    greedy.connect(TIMEOUT_S)
    assert greedy.connection is not first
    assert size_of(greedy, 10) == 10
    wait_for(lambda: server.endpoint.holds.memory.held < 500_000)


@pytest.mark.threads
@pytest.mark.usefixtures("long_pause")
def test_a_call_is_refused_while_small_holders_fill_the_memory_but_a_small_call_is_not(world: World) -> None:
    server, slow = serving(world, 500_000)
    # The bytes of a holder, with a chunk that is being copied, must stay below ASSURED_BYTES.
    holders = [world.client() for _ in range(4)]
    # So must the bytes that the asker sends before it knows of the refusal: its buffer and the server's queue.
    asker = world.client(client_options(buffer_bytes=128 << 10))
    with ThreadPoolExecutor(len(holders)) as pool:
        calls = [pool.submit(one.remote("slow").with_timeout(TIMEOUT_S).hold, bytes(127_000)) for one in holders]
        wait_for(lambda: len(slow.futures) == len(holders) and server.endpoint.holds.memory.is_full)
        with pytest.raises(RefusedError, match=r"memory for all connections is full \(memoryLimit\)") as refused:
            size_of(asker, 300_000)
        assert (refused.value.reason, refused.value.retry) == ("busy", Retry.SOON)
        # What it had sent before it knew of the refusal is dropped by another thread, and counts until then.
        wait_for(lambda: sum(one.held_bytes for one in server.sessions if one.id == asker.connection.id) == 0)
        assert size_of(asker, 1_000) == 1_000
        assert all(one.connected for one in holders)
        slow.end()
        assert [call.result(TIMEOUT_S) for call in calls] == [1] * len(holders)
    wait_for(lambda: not server.endpoint.holds.memory.is_full)
    assert size_of(asker, 300_000) == 300_000


@pytest.mark.threads
@pytest.mark.usefixtures("long_pause")
@pytest.mark.parametrize("raised", [10_000_000, 0])
def test_a_changed_limit_pauses_and_continues_connected_clients(world: World, raised: int) -> None:
    live = LiveOptions(server_options(memory_limit=10_000_000, queue_bytes=64 << 10))
    server, slow = serving_with(world, live)
    greedy = world.client()
    memory = server.endpoint.holds.memory

    def limit_to(memory_limit: int) -> None:
        live.replace(server_options(memory_limit=memory_limit))

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(greedy.remote("slow").with_timeout(TIMEOUT_S).hold, bytes(400_000)) for _ in range(2)]
        wait_for(lambda: memory.held > 800_000, "the memory of the calls")
        assert not memory.paused
        limit_to(1_000_000)
        wait_for(lambda: memory.paused, "the pause of the connection")
        limit_to(raised)
        wait_for(lambda: not memory.paused, "the end of the pause")
        assert greedy.ping(TIMEOUT_S) >= 0
        slow.end()
        assert [call.result(TIMEOUT_S) for call in calls] == [1, 1]


def test_a_client_has_no_memory_limit() -> None:
    assert (ClientOptions().memory_limit, ServerOptions().memory_limit) == (0, 512 << 20)

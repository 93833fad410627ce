"""The limits of the calls of one connection: their number, their bytes, and the pause of acknowledgements."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from aeron_spark.endpoint.peer_calls import PeerCalls
from aeron_spark.errors import RefusedError, Retry
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.options import LiveOptions
from aeron_spark.protocol.frames import RecordKind
from aeron_spark.protocol.rpc_messages import Call
from tests.internals import core_of
from tests.unit.endpoint.endpoints import TIMEOUT_S, World, server_options, wait_for
from tests.unit.endpoint.test_remote_calls import LATER_METHODS, METHODS, Later, Things


@pytest.mark.threads
def test_calls_with_futures_count_for_the_limit_of_running_calls(world: World) -> None:
    server, client = world.pair(max_running=2)
    later = Later()
    server.register("later", later, LATER_METHODS)
    proxy = client.remote("later").with_timeout(TIMEOUT_S)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(proxy.get) for _ in range(2)]
        wait_for(lambda: len(later.futures) == 2)
        with pytest.raises(
            RefusedError, match=r"2 of your calls wait or run, which is the limit \(maxRunning\)"
        ) as refused:
            proxy.now()
        assert (refused.value.reason, refused.value.retry) == ("busy", Retry.SOON)
        for future in later.futures:
            future.set_result(None)
        assert [call.result(TIMEOUT_S) for call in calls] == [None, None]
    assert proxy.now() == "now"


class Gate:
    """An object whose method waits until the test lets it continue."""

    def __init__(self) -> None:
        self.running = threading.Semaphore(0)
        self.open = threading.Event()

    def wait(self) -> None:
        self.running.release()
        assert self.open.wait(TIMEOUT_S)

    def answer(self) -> str:
        return "here"


@pytest.mark.threads
def test_the_connections_of_a_key_share_its_workers_and_other_keys_have_theirs(world: World) -> None:
    gate, same_key = Gate(), MemoryPeerStore()
    server = world.server(server_options(workers=4, workers_per_key=1))
    server.register("gate", gate, ["wait", "answer"])
    first, second, other = world.client(store=same_key), world.client(store=same_key), world.client()
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(first.remote("gate").with_timeout(TIMEOUT_S).wait)
        try:
            assert gate.running.acquire(timeout=TIMEOUT_S)
            queued = pool.submit(second.remote("gate").with_timeout(TIMEOUT_S).answer)
            wait_for(lambda: server.statistics["running"] == 2, "the call of the second connection")
            assert other.remote("gate").with_timeout(TIMEOUT_S).answer() == "here"
            assert not queued.done()
        finally:
            gate.open.set()
        assert (waiting.result(TIMEOUT_S), queued.result(TIMEOUT_S)) == (None, "here")


@pytest.mark.threads
def test_changed_limits_of_calls_apply_to_connected_and_further_clients(world: World) -> None:
    live = LiveOptions(server_options())
    server, client = world.server(live), world.client()
    later = Later()
    server.register("later", later, LATER_METHODS)
    live.replace(server_options(max_running=1, call_bytes=100_000))
    for one in (client, world.client()):
        proxy = one.remote("later").with_timeout(TIMEOUT_S)
        with pytest.raises(RefusedError, match=r"the limit is 100000 \(callBytes\)"):
            proxy.get(bytes(200_000))
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(proxy.get)
            wait_for(lambda: later.futures, "the call")
            with pytest.raises(RefusedError, match=r"1 of your calls wait or run.*maxRunning"):
                proxy.now()
            later.futures.pop().set_result(None)
            call.result(TIMEOUT_S)


@pytest.mark.threads
def test_acknowledgements_continue_when_calls_become_full_while_a_worker_finds_them_half_empty(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = world.pair(max_running=2)
    later = Later()
    server.register("later", later, LATER_METHODS)
    (connection,) = server.connections
    proxy = client.remote("later").with_timeout(TIMEOUT_S)
    peer_calls = core_of(connection).peer_calls
    is_half_empty, check_room = PeerCalls._is_half_empty, peer_calls._check_room
    further: list[Future[object]] = []
    checks: list[str] = []

    def check_room_and_note() -> None:
        check_room()
        checks.append("ended")

    with ThreadPoolExecutor(4) as pool:

        def is_half_empty_before_further_calls(calls: PeerCalls) -> bool:
            found: bool = is_half_empty.fget(calls)  # type: ignore[attr-defined]
            if found and not further:
                further.extend(pool.submit(proxy.get) for _ in range(2))
                time.sleep(0.3)  # the event loop takes the calls meanwhile, unless a lock keeps it from that
            return found

        calls = [pool.submit(proxy.get) for _ in range(2)]
        wait_for(lambda: len(later.futures) == 2 and core_of(connection).is_paused)
        monkeypatch.setattr(PeerCalls, "_is_half_empty", property(is_half_empty_before_further_calls))
        monkeypatch.setattr(peer_calls, "_check_room", check_room_and_note)
        for future in later.futures[:2]:
            future.set_result(None)
        wait_for(lambda: len(checks) == 2 and len(later.futures) == 4 and core_of(connection).is_paused)
        for future in later.futures[2:]:
            future.set_result(None)
        assert [call.result(TIMEOUT_S) for call in (*calls, *further)] == [None] * 4
    wait_for(lambda: not core_of(connection).is_paused)


def test_calls_that_wait_for_a_worker_count_as_calls_and_as_memory_of_their_connection(world: World) -> None:
    server, client = world.pair(workers=1)
    things, later = Things(), Later()
    server.register("things", things, METHODS)
    server.register("later", later, LATER_METHODS)
    (connection,) = server.connections
    client.remote("things").oneway.hold()
    call = core_of(client.connection).rpc.encode_one_way(Call("later", "get", (bytes(1_000),), {}))
    core_of(client.connection).sender.push_many(RecordKind.CALL, [call] * 200, world.clock() + TIMEOUT_S)
    wait_for(lambda: core_of(connection).running_calls == 201)
    assert core_of(connection).held_bytes > 200 * 1_000
    things.released.set()
    wait_for(lambda: len(later.futures) == 200)
    for future in later.futures:
        future.set_result(None)
    wait_for(lambda: (core_of(connection).running_calls, core_of(connection).waiting_bytes) == (0, 0))

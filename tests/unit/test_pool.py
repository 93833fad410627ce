"""Finding C7: connections of a process that are not used are closed, and nothing of them is left."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aeron_spark.errors import ConnectError, RefusedError, UsageError, WaitTimeout
from aeron_spark.options import ServerRoute
from aeron_spark.pool import IDLE_SECONDS, POOL, SHORTEST_SECONDS, THREAD, TURN_SECONDS, ConnectionPool
from aeron_spark.wire.stream_rpc import LastCommitted, LastTransaction, encode_response
from tests.unit.connection.ends import wait_for
from tests.unit.test_error_codes import ADVICE


class Client:
    """A connected client, as far as the pool and its calls need one."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.closed = False
        self.links: list[SimpleNamespace] = []
        self.during: Callable[[], object] = lambda: None  # while a call runs

    def connect(self, timeout: float | None = None) -> None:
        if self.closed:
            raise UsageError("the client is closed")

    def remote(self, target: object) -> Client:
        self.connect()
        return self

    def with_timeout(self, seconds: float) -> Client:
        return self

    def __getitem__(self, method: str) -> Callable[[bytes], bytes]:
        return self.handle

    def handle(self, request: bytes) -> bytes:
        self.during()
        return encode_response(LastCommitted(0, self.address))

    def bulk_link(self, timeout: float | None = None) -> SimpleNamespace:
        self.connect()
        link = SimpleNamespace(closed=False)
        link.close = lambda: setattr(link, "closed", True)
        self.links.append(link)
        return link

    def close(self) -> None:
        self.closed = True


def call(session: Any, timeout: float | None = None) -> str:
    """Call the server of a session; return its address, which it answers as a token."""
    answer: LastCommitted = session.call(LastTransaction("s", "w", ""), timeout=timeout)
    return answer.token


class World:
    """A pool with a clock of the test's, and every client that it made."""

    def __init__(self, **settings: Any) -> None:
        self.now = 1000.0
        self.clients: list[Client] = []
        self.refusals: list[Exception] = []
        self.pool = ConnectionPool(self.connect, **{"clock": lambda: self.now, "watch": False, **settings})

    def connect(self, address: str, **options: Any) -> Client:
        if self.refusals:
            raise self.refusals.pop(0)
        self.clients.append(Client(address))
        return self.clients[-1]

    def after(self, seconds: float) -> float | None:
        """Let time pass, and sweep; return when to sweep again."""
        self.now += seconds
        return self.pool.sweep(self.now)

    @property
    def open(self) -> int:
        return sum(not client.closed for client in self.clients)


def way(handshake: Any = "worker", *addresses: str) -> ServerRoute:
    servers = tuple((address, address) for address in addresses or ("host:1",))
    return ServerRoute(server=servers, server_key=(bytes(32),), stream="flights", handshake=handshake)


def use(world: World, route: ServerRoute, partition: int | None = None) -> None:
    with world.pool.borrow(route, partition) as sessions:
        for session in sessions.values():
            call(session)


@pytest.mark.parametrize("handshake", ["worker", "partition"])
def test_finding_c7_an_entry_that_is_idle_for_60_seconds_is_closed_whatever_the_handshake(handshake: str) -> None:
    world = World()
    for partition in range(3):
        use(world, way(handshake), partition)
    made = 3 if handshake == "partition" else 1
    assert (len(world.clients), world.open) == (made, made)
    assert world.after(IDLE_SECONDS - 0.5) == 0.5
    assert world.open == made
    assert world.after(0.5) is None  # no entry is open: the thread ends
    assert world.open == 0
    use(world, way(handshake), 1)
    assert (len(world.clients), world.open) == (made + 1, 1)


def test_each_use_begins_the_60_seconds_anew() -> None:
    world = World()
    for _ in range(5):
        use(world, way())
        world.after(IDLE_SECONDS - 1)
    assert (len(world.clients), world.open) == (1, 1)


def test_a_borrowed_entry_is_not_idle() -> None:
    world = World()
    with world.pool.borrow(way()) as sessions:
        call(sessions["host:1"])
        assert world.after(10 * IDLE_SECONDS) == IDLE_SECONDS / 10
        assert world.open == 1
    assert world.after(0) == IDLE_SECONDS
    world.after(IDLE_SECONDS)
    assert world.open == 0


def test_an_entry_is_not_idle_while_a_call_runs_or_a_bulk_link_is_lent() -> None:
    world = World()
    session = world.pool.sessions(way())["host:1"]
    call(session)
    world.clients[0].during = lambda: world.after(10 * IDLE_SECONDS)
    assert call(session) == "host:1"
    assert world.open == 1
    with session.bulk_link("key"):
        world.after(10 * IDLE_SECONDS)
        assert world.open == 1
    assert world.clients[0].links[0].closed is False
    world.after(IDLE_SECONDS)
    assert (world.open, world.clients[0].links[0].closed) == (0, True)


def test_a_session_whose_entry_was_closed_connects_again_and_is_closed_again() -> None:
    world = World()
    session = world.pool.sessions(way())["host:1"]  # as a query keeps it
    for turn in (1, 2, 3):
        call(session)
        assert (len(world.clients), world.open) == (turn, 1)
        use(world, way())  # the same entry, or another one: both are swept
        world.after(IDLE_SECONDS)
        assert world.open == 0


def test_an_entry_that_could_not_connect_leaves_nothing_to_sweep() -> None:
    world = World()
    world.refusals = [ConnectError("nothing answers")]
    with pytest.raises(ConnectError):
        use(world, way())
    assert world.after(0) is None


def test_closing_the_pool_closes_what_is_in_use_too() -> None:
    world = World()
    with world.pool.borrow(way()) as sessions:
        call(sessions["host:1"])
        world.pool.close()
        assert world.open == 0
        call(sessions["host:1"])  # connects again
    assert world.open == 1
    world.after(IDLE_SECONDS)
    assert world.open == 0


@pytest.mark.parametrize("code", sorted(ADVICE))
def test_finding_c9_a_refused_connection_follows_the_table_of_advice(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    monkeypatch.setattr("aeron_spark.pool.time.sleep", lambda seconds: None)
    for address in ("host:1", "host:2"):
        use(world, way("partition", address), 1)
    world.refusals = [RefusedError("no", reason=code)] * 2
    if ADVICE[code].name == "NEVER":
        with pytest.raises(RefusedError):
            use(world, way("partition"), 2)
        return
    use(world, way("partition"), 2)
    # what is idle at that server makes room; what is idle at another one could not
    assert [client.closed for client in world.clients] == [ADVICE[code].name == "WHEN_FREED", False, False]


def test_a_server_that_stays_full_is_waited_for_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.refusals = [RefusedError("Server is full", reason="full")] * 10_000

    def sleep(seconds: float) -> None:
        world.now += seconds

    monkeypatch.setattr("aeron_spark.pool.time.sleep", sleep)
    with pytest.raises(RefusedError, match="Server is full, for 300 s") as caught:
        use(world, way())
    assert caught.value.reason == "full"
    assert TURN_SECONDS <= world.now - 1000.0 < TURN_SECONDS + 1


Use = Callable[[Any], object]
SHORT_USES: dict[str, Use] = {
    "call": lambda session: call(session, 0.2),
    "bulk link": lambda session: session.bulk_link("key", 0.2).__enter__(),
    "connect": lambda session: session.client.connect(0.2),
}


@pytest.mark.parametrize("use_it", SHORT_USES.values(), ids=SHORT_USES)
def test_finding_a_short_use_does_not_wait_for_the_connect_of_another_thread(use_it: Use) -> None:
    """Finding: a call of 2 s waited up to 300 s while another thread connected to a server that was full."""
    begun, may_go_on = threading.Event(), threading.Event()
    world = World()
    made = world.connect

    def connect(address: str, **options: Any) -> Client:
        begun.set()
        assert may_go_on.wait(30)
        return made(address)

    world.pool.connect = connect  # type: ignore[assignment]
    session = world.pool.sessions(way())["host:1"]
    with ThreadPoolExecutor(2) as threads:
        long = threads.submit(call, session)
        try:
            assert begun.wait(10)
            short = threads.submit(use_it, session)
            with pytest.raises(WaitTimeout, match="for another thread of this process to connect to host:1"):
                short.result(10)
        finally:
            may_go_on.set()
        assert long.result(10) == "host:1"


def test_finding_a_short_call_waits_for_a_place_for_its_own_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding: a call of 2 s waited 300 s for a place at a server that was full, whatever was asked."""
    world = World()
    world.refusals = [RefusedError("Server is full", reason="full")] * 10_000
    times: list[float] = []
    refuse = world.connect

    def connect(address: str, *, within: float, **options: Any) -> Client:
        times.append(within)
        return refuse(address)

    def sleep(seconds: float) -> None:
        world.now += seconds

    world.pool.connect = connect  # type: ignore[assignment]
    monkeypatch.setattr("aeron_spark.pool.time.sleep", sleep)
    with pytest.raises(WaitTimeout, match="waited 2 s for a place at the server host:1: Server is full") as caught:
        call(world.pool.sessions(way())["host:1"], 2.0)
    assert caught.value.reason == "full"
    assert world.now == 1002.0
    assert (times[0], max(times), min(times)) == (2.0, 2.0, SHORTEST_SECONDS)


def test_a_bulk_link_that_is_idle_for_60_seconds_is_closed_beside_others_in_use() -> None:
    world = World()
    with world.pool.borrow(way()) as sessions:
        with sessions["host:1"].bulk_link("key"):
            world.after(10 * IDLE_SECONDS)
        world.after(IDLE_SECONDS - 1)
        (link,) = world.clients[0].links
        assert not link.closed
        world.after(1)
        assert (link.closed, world.open) == (True, 1)


@contextmanager
def ended(pool: ConnectionPool) -> Iterator[None]:
    try:
        yield
    finally:
        pool.close()


def test_finding_c7_the_thread_that_watches_ends_with_the_last_entry_and_begins_with_the_next() -> None:
    import time

    world = World(clock=time.monotonic, watch=True, idle_seconds=0.05)
    before = {thread.ident for thread in threading.enumerate()}

    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.ident not in before]

    with ended(world.pool):
        for turn in (1, 2):
            with world.pool.borrow(way("worker", "host:1", "host:2")) as sessions:
                for session in sessions.values():
                    call(session)
                assert threads() == [THREAD]
            wait_for(lambda: world.open == 0, "idle connections to be closed")
            wait_for(lambda: not threads(), "the pool's thread to end")
            assert len(world.clients) == 2 * turn


def failing() -> None:
    raise RuntimeError("an error of no known kind")


def test_finding_c7_an_error_while_one_entry_is_closed_leaves_no_other_one_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Finding C7: an error that was not an AeronSparkError ended the sweep, and the thread that makes it, for good."""
    world = World()
    for address in ("host:1", "host:2", "host:3"):
        session = world.pool.sessions(way("worker", address))[address]
        with session.bulk_link("key"):
            pass
    broken, without_links, _ = world.clients
    broken.close = failing  # type: ignore[method-assign]
    without_links.links[0].close = failing
    assert world.after(IDLE_SECONDS) is None
    assert [client.closed for client in world.clients] == [False, True, True]
    assert sorted(record.message for record in caplog.records) == [
        "closing a connection with host:1 failed",
        "closing bulk links with host:2 failed",
    ]


def test_finding_c7_an_error_while_a_bulk_link_is_closed_leaves_no_other_one_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Finding C7: an error while an idle bulk link was closed ended the sweep before those of other entries."""
    world = World()
    with world.pool.borrow(way("worker", "host:1", "host:2")) as sessions:
        for session in sessions.values():
            with session.bulk_link("key"):
                pass
        first, second = (client.links[0] for client in world.clients)
        first.close = second.close = failing
        assert world.after(IDLE_SECONDS) == IDLE_SECONDS / 10
    assert sorted(record.message for record in caplog.records) == [
        "closing bulk links with host:1 failed",
        "closing bulk links with host:2 failed",
    ]


def test_finding_c7_a_watching_thread_that_failed_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding C7: after the thread that sweeps had failed, the pool believed that it still ran."""
    import time

    world = World(clock=time.monotonic, watch=True, idle_seconds=0.05)
    ended_threads: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", ended_threads.append)
    sweep = world.pool.sweep
    monkeypatch.setattr(world.pool, "sweep", lambda now: failing())
    with ended(world.pool):
        use(world, way("worker", "host:1"))
        wait_for(lambda: ended_threads, "the thread that watches to fail")
        monkeypatch.setattr(world.pool, "sweep", sweep)
        wait_for(lambda: not world.pool._watching, "the pool to know that")
        use(world, way("worker", "host:2"))
        wait_for(lambda: world.open == 0, "idle connections to be closed")


def test_finding_c7_what_connections_share_is_given_back_when_no_entry_is_open() -> None:
    """Finding C7: a worker kept an Aeron client after its last connection was closed."""
    waits = [5.0, None]
    asked: list[float] = []
    world = World()
    world.pool = ConnectionPool(
        world.connect, clock=lambda: world.now, watch=False, let_go=lambda: asked.append(world.now) or waits.pop(0)
    )
    use(world, way("worker", "host:1"))
    use(world, way("worker", "host:2"))
    world.now += 1
    use(world, way("worker", "host:2"))
    assert world.after(IDLE_SECONDS - 1) == 1.0
    assert asked == []
    assert world.after(1.0) == 5.0
    assert world.after(5.0) is None
    assert asked == [world.now - 5.0, world.now]


def test_finding_c7_what_cannot_be_given_back_ends_no_sweep(caplog: pytest.LogCaptureFixture) -> None:
    world = World(let_go=failing)
    use(world, way())
    assert world.after(IDLE_SECONDS) is None
    assert [record.message for record in caplog.records] == ["closing what connections share failed"]


def test_finding_c7_the_thread_that_watches_waits_for_what_connections_share_until_the_pool_is_closed() -> None:
    import time

    shared = threading.Event()
    world = World(clock=time.monotonic, watch=True, idle_seconds=0.05, let_go=lambda: shared.set() or 3600.0)
    with ended(world.pool):
        use(world, way())
        assert shared.wait(10)
        assert (world.open, world.pool._watching) == (0, True)
        world.pool.close()
        wait_for(lambda: not world.pool._watching, "the pool's thread to end")
        shared.clear()
        use(world, way())
        assert shared.wait(10)


FORKED = """
import os, sys, threading
from tests.unit.test_pool import World, call, use, way
from aeron_spark.pool import POOL, ConnectionPool
made = []
POOL.connect = lambda address, **options: made.append(World().connect(address)) or made[-1]
with POOL.borrow(way()) as sessions:
    call(sessions["host:1"])
    assert len(made) == 1 and POOL._watching
    with POOL._changed:  # as another thread may hold it at that moment
        child = os.fork()
    if not child:
        assert threading.active_count() == 1
        assert call(sessions["host:1"]) == "host:1"  # not by the parent's client
        assert len(made) == 2 and not made[0].closed
        assert POOL._watching and threading.active_count() == 2
        POOL.close()
        assert made[1].closed and not made[0].closed
        os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert len(made) == 1 and not made[0].closed
POOL.close()
assert made[0].closed
"""


def test_finding_c7_a_forked_child_has_a_pool_of_its_own() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", FORKED], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_pool_of_the_process_keeps_connections_for_60_seconds() -> None:
    assert POOL._idle_seconds == IDLE_SECONDS == 60.0

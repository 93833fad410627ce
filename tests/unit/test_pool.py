"""The pool closes idle connections, and with the last one its thread and the shared Aeron client."""

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

from aeron_spark.endpoint.connection import Connection
from aeron_spark.errors import ConnectError, RefusedError, TransportError, UsageError, WaitTimeout
from aeron_spark.options import ServerRoute
from aeron_spark.pool import (
    CALL_TIMEOUT_S,
    IDLE_TIMEOUT_S,
    MIN_CONNECT_TIMEOUT_S,
    POOL,
    REFUSED_TIMEOUT_S,
    THREAD_NAME,
    ConnectionPool,
)
from aeron_spark.stream_client import staging
from aeron_spark.wire.stream_requests import (
    CommitEmptyTransaction,
    Committed,
    LastCommitted,
    LastTransaction,
    Transaction,
    encode_response,
)
from tests.unit.endpoint.endpoints import wait_for
from tests.unit.stream_client.connections import connection_of
from tests.unit.test_error_codes import ADVICE


class Client:
    """A stand-in for a connected client."""

    def __init__(
        self, address: str, is_in_use: Callable[[], bool] = lambda: True,
        on_unused: Callable[[Any], object] = lambda client: None,
    ) -> None:  # fmt: skip
        self.address = address
        self.closed = False
        self.stopped = False
        self.is_in_use, self.on_unused = is_in_use, on_unused
        self.links: list[SimpleNamespace] = []
        self.during: Callable[[], object] = lambda: None  # while a call runs

    @property
    def connected(self) -> bool:
        return self.state == "connected"

    @property
    def state(self) -> str:
        return "closed" if self.closed else "stopped" if self.stopped else "connected"

    def lose_link(self) -> None:
        """Stop, as the client does if it is not in use; otherwise, it connects again."""
        if not self.is_in_use():
            self.stopped = True
            self.on_unused(self)

    def connect(self, timeout: float | None = None) -> None:
        if self.closed:
            raise UsageError("the client is closed")
        if self.stopped:
            raise TransportError("the link was lost")

    @property
    def connection(self) -> Connection:
        self.connect()
        return connection_of(lambda data, timeout: self.handle(data))

    def handle(self, request: bytes) -> bytes:
        self.during()
        return encode_response(LastCommitted(0, self.address))

    def bulk_link(self, timeout: float | None = None) -> SimpleNamespace:
        self.connect()
        link = SimpleNamespace(closed=False, close_after=lambda seconds: None)
        link.keep_open = lambda: not link.closed
        link.close = lambda: setattr(link, "closed", True)
        self.links.append(link)
        return link

    def close(self) -> None:
        self.closed = True


def call(session: Any, timeout: float | None = None) -> str:
    """Call the server of a session; return the server's address, which is the token in the response."""
    response: LastCommitted = session.call(LastTransaction("s", "w", ""), timeout=timeout)
    return response.token


class World:
    """A pool with a clock that the test sets, and all clients that the pool made."""

    def __init__(self, **settings: Any) -> None:
        self.now = 1000.0
        self.clients: list[Client] = []
        self.refusals: list[Exception] = []
        self.pool = ConnectionPool(self.connect, **{"clock": lambda: self.now, "watch": False, **settings})

    def connect(self, address: str, **options: Any) -> Client:
        if self.refusals:
            raise self.refusals.pop(0)
        self.clients.append(Client(address, *(options[name] for name in ("is_in_use", "on_unused") if name in options)))
        return self.clients[-1]

    def after(self, seconds: float) -> float | None:
        """Advance the clock and sweep; return the seconds until the next sweep."""
        self.now += seconds
        return self.pool.sweep(self.now)

    @property
    def open(self) -> int:
        return sum(not client.closed for client in self.clients)


def route_to(handshake: Any = "worker", *addresses: str) -> ServerRoute:
    servers = tuple((address, address) for address in addresses or ("host:1",))
    return ServerRoute(server=servers, server_key=(bytes(32),), stream="flights", handshake=handshake)


def use(world: World, route: ServerRoute, partition: int | None = None) -> None:
    with world.pool.borrow(route, partition) as sessions:
        for session in sessions.values():
            call(session)


@pytest.mark.parametrize("handshake", ["worker", "partition"])
def test_an_entry_that_is_idle_for_60_seconds_is_closed_for_each_handshake(handshake: str) -> None:
    world = World()
    for partition in range(3):
        use(world, route_to(handshake), partition)
    made = 3 if handshake == "partition" else 1
    assert (len(world.clients), world.open) == (made, made)
    assert world.after(IDLE_TIMEOUT_S - 0.5) == 0.5
    assert world.open == made
    assert world.after(0.5) is None  # no entry is open: the thread ends
    assert world.open == 0
    use(world, route_to(handshake), 1)
    assert (len(world.clients), world.open) == (made + 1, 1)


def test_each_use_restarts_the_60_seconds() -> None:
    world = World()
    for _ in range(5):
        use(world, route_to())
        world.after(IDLE_TIMEOUT_S - 1)
    assert (len(world.clients), world.open) == (1, 1)


def test_a_borrowed_entry_is_not_idle() -> None:
    world = World()
    with world.pool.borrow(route_to()) as sessions:
        call(sessions["host:1"])
        assert world.after(10 * IDLE_TIMEOUT_S) == IDLE_TIMEOUT_S / 10
        assert world.open == 1
    assert world.after(0) == IDLE_TIMEOUT_S
    world.after(IDLE_TIMEOUT_S)
    assert world.open == 0


def test_an_entry_is_not_idle_while_a_call_runs_or_a_bulk_link_is_borrowed() -> None:
    world = World()
    session = world.pool.sessions(route_to())["host:1"]
    call(session)
    world.clients[0].during = lambda: world.after(10 * IDLE_TIMEOUT_S)
    assert call(session) == "host:1"
    assert world.open == 1
    with session.bulk_link():
        world.after(10 * IDLE_TIMEOUT_S)
        assert world.open == 1
    assert world.clients[0].links[0].closed is False
    world.after(IDLE_TIMEOUT_S)
    assert (world.open, world.clients[0].links[0].closed) == (0, True)


def test_a_session_whose_entry_was_closed_connects_again_and_is_closed_again() -> None:
    world = World()
    session = world.pool.sessions(route_to())["host:1"]  # as a query keeps it
    for count in (1, 2, 3):
        call(session)
        assert (len(world.clients), world.open) == (count, 1)
        use(world, route_to())  # the same entry or another one: sweep closes both
        world.after(IDLE_TIMEOUT_S)
        assert world.open == 0


def test_an_idle_connection_that_loses_its_link_is_closed_and_the_next_use_connects() -> None:
    """Regression: it connected again by itself, and started a media driver that had been stopped."""
    world = World()
    use(world, route_to())
    session = world.pool.sessions(route_to())["host:1"]
    with session.bulk_link():
        pass
    world.clients[0].lose_link()
    assert (world.open, world.clients[0].links[0].closed) == (0, True)
    use(world, route_to())
    assert (len(world.clients), world.open) == (2, 1)
    assert call(session) == "host:1"
    assert len(world.clients) == 2


def test_the_shared_clients_are_closed_after_the_client_that_lost_its_link() -> None:
    """Regression: the thread ended before the client was closed, and the Aeron client of an idle process stayed."""
    closed: list[int] = []
    world = World(close_shared=lambda: closed.append(world.open))
    use(world, route_to())
    close = world.clients[0].close
    world.clients[0].close = lambda: (world.after(0), close())
    world.clients[0].lose_link()
    assert closed == []
    assert world.after(0) is None
    assert closed == [0]


def test_a_connection_in_use_that_loses_its_link_stays() -> None:
    world = World()
    with world.pool.borrow(route_to()) as sessions:
        call(sessions["host:1"])
        world.clients[0].lose_link()
        assert call(sessions["host:1"]) == "host:1"
    session = world.pool.sessions(route_to())["host:1"]
    world.clients[0].during = world.clients[0].lose_link
    assert call(session) == "host:1"
    with session.bulk_link():
        world.clients[0].lose_link()
    assert (len(world.clients), world.open) == (1, 1)
    world.clients[0].lose_link()
    assert world.open == 0


def test_a_use_that_begins_when_the_client_has_stopped_replaces_it() -> None:
    world = World()
    use(world, route_to())
    world.clients[0].stopped = True  # the client has not called the pool yet
    use(world, route_to())
    assert [client.closed for client in world.clients] == [True, False]
    world.clients[0].on_unused(world.clients[0])
    assert world.open == 1


def test_an_entry_whose_client_was_dropped_does_not_keep_the_shared_clients_and_is_forgotten_after_60_seconds() -> None:
    closed: list[float] = []
    world = World(close_shared=lambda: closed.append(world.now))
    use(world, route_to())
    world.clients[0].lose_link()
    assert world.after(IDLE_TIMEOUT_S - 1) is None
    assert closed == [world.now]
    assert len(world.pool._entries) == 1
    world.after(1.0)
    assert not world.pool._entries


def test_a_use_that_connects_after_a_loss_waits_as_long_as_a_call_for_the_restart_of_the_server() -> None:
    timeouts: list[float] = []
    world = World()
    made = world.connect

    def connect(address: str, *, timeout: float, **options: Any) -> Client:
        timeouts.append(timeout)
        return made(address, **options)

    world.pool.connect = connect
    use(world, route_to())
    world.clients[0].lose_link()
    use(world, route_to())
    assert timeouts == [route_to().connect_timeout, CALL_TIMEOUT_S]


def test_an_entry_that_could_not_connect_needs_no_sweep() -> None:
    world = World()
    world.refusals = [ConnectError("no response")]
    with pytest.raises(ConnectError):
        use(world, route_to())
    assert world.after(0) is None


def test_closing_the_pool_also_closes_connections_in_use() -> None:
    world = World()
    with world.pool.borrow(route_to()) as sessions:
        call(sessions["host:1"])
        world.pool.close()
        assert world.open == 0
        call(sessions["host:1"])  # connects again
    assert world.open == 1
    world.after(IDLE_TIMEOUT_S)
    assert world.open == 0


@pytest.mark.parametrize("code", sorted(ADVICE))
def test_the_pool_follows_the_advice_of_a_refusal(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr("aeron_spark.pool.time.sleep", lambda seconds: None)
    for address in ("host:1", "host:2"):
        use(world, route_to("partition", address), 1)
    world.refusals = [RefusedError("no", reason=code)] * 2
    if ADVICE[code].name == "NEVER":
        with pytest.raises(RefusedError):
            use(world, route_to("partition"), 2)
        return
    use(world, route_to("partition"), 2)
    # only an idle connection with the full server is closed
    assert [client.closed for client in world.clients] == [ADVICE[code].name == "WHEN_FREED", False, False]


def test_attempts_at_a_full_server_end_after_300_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.refusals = [RefusedError("Server is full", reason="full")] * 10_000

    def sleep(seconds: float) -> None:
        world.now += seconds

    monkeypatch.setattr("aeron_spark.pool.time.sleep", sleep)
    with pytest.raises(RefusedError, match="the server host:1 refused connections for 300 s: Server is full") as caught:
        use(world, route_to())
    assert caught.value.reason == "full"
    assert REFUSED_TIMEOUT_S <= world.now - 1000.0 < REFUSED_TIMEOUT_S + 1


Use = Callable[[Any], object]
SHORT_USES: dict[str, Use] = {
    "call": lambda session: call(session, 0.2),
    "bulk link": lambda session: session.bulk_link(0.2).__enter__(),
    "connect": lambda session: session.client.connect(0.2),
}


@pytest.mark.parametrize("use_it", SHORT_USES.values(), ids=SHORT_USES)
def test_a_short_use_waits_for_another_threads_connect_only_until_its_timeout(use_it: Use) -> None:
    """Regression: a call of 2 s waited up to 300 s while another thread connected to a server that was full."""
    started, resume = threading.Event(), threading.Event()
    world = World()
    made = world.connect

    def connect(address: str, **options: Any) -> Client:
        started.set()
        assert resume.wait(30)
        return made(address, **options)

    world.pool.connect = connect
    session = world.pool.sessions(route_to())["host:1"]
    with ThreadPoolExecutor(2) as threads:
        long = threads.submit(call, session)
        try:
            assert started.wait(10)
            short = threads.submit(use_it, session)
            with pytest.raises(WaitTimeout, match="for another thread of this process to connect to host:1"):
                short.result(10)
        finally:
            resume.set()
        assert long.result(10) == "host:1"


def test_a_short_call_tries_a_full_server_only_until_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a call with a timeout of 2 s waited 300 s for a full server."""
    world = World()
    world.refusals = [RefusedError("Server is full", reason="full")] * 10_000
    times: list[float] = []
    refuse = world.connect

    def connect(address: str, *, within: float, **options: Any) -> Client:
        times.append(within)
        return refuse(address)

    def sleep(seconds: float) -> None:
        world.now += seconds

    world.pool.connect = connect
    monkeypatch.setattr("aeron_spark.pool.time.sleep", sleep)
    with pytest.raises(WaitTimeout, match="the server host:1 refused connections for 2 s: Server is full") as caught:
        call(world.pool.sessions(route_to())["host:1"], 2.0)
    assert caught.value.reason == "full"
    assert world.now == 1002.0
    assert (times[0], max(times), min(times)) == (2.0, 2.0, MIN_CONNECT_TIMEOUT_S)


def test_a_commit_waits_until_a_full_server_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a process that had no connection yet gave up after the first attempt at a commit, of 20 s."""
    world = World()
    refuse = world.connect

    def connect(address: str, **options: Any) -> Client:
        world.refusals = [RefusedError("Server is full", reason="full")] * (world.now < 1_060.0)
        return refuse(address, **options)

    def sleep(seconds: float) -> None:
        world.now += seconds

    world.pool.connect = connect
    monkeypatch.setattr("aeron_spark.pool.time.sleep", sleep)
    session = world.pool.sessions(route_to())["host:1"]
    session.sleep = sleep
    commit = CommitEmptyTransaction("s", Transaction("w", "run", 0), staging.COMMIT_TIMEOUT_S)
    monkeypatch.setattr(Client, "handle", lambda client, request: encode_response(Committed(False, (), "")))
    assert not staging.commit(session, commit).repeated
    assert 1_060.0 <= world.now < 1_061.0


@contextmanager
def ended(pool: ConnectionPool) -> Iterator[None]:
    try:
        yield
    finally:
        pool.close()


def test_the_thread_ends_with_the_last_entry_and_starts_with_the_next() -> None:
    import time

    world = World(clock=time.monotonic, watch=True, idle_timeout_s=0.05)
    before = {thread.ident for thread in threading.enumerate()}

    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.ident not in before]

    with ended(world.pool):
        for count in (1, 2):
            with world.pool.borrow(route_to("worker", "host:1", "host:2")) as sessions:
                for session in sessions.values():
                    call(session)
                assert threads() == [THREAD_NAME]
            wait_for(lambda: world.open == 0, "idle connections to be closed")
            wait_for(lambda: not threads(), "the pool's thread to end")
            assert len(world.clients) == 2 * count


def failing() -> None:
    raise RuntimeError("an unexpected error")


def test_an_error_at_closing_an_entry_does_not_keep_others_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Regression: an error that was not an AeronSparkError ended the sweep and its thread for ever."""
    world = World()
    for address in ("host:1", "host:2", "host:3"):
        session = world.pool.sessions(route_to("worker", address))[address]
        with session.bulk_link():
            pass
    broken, without_links, _ = world.clients
    broken.close = failing
    without_links.links[0].close = failing
    assert world.after(IDLE_TIMEOUT_S) is None
    assert [client.closed for client in world.clients] == [False, True, True]
    assert sorted(record.message for record in caplog.records) == [
        "closing a connection with host:1 failed",
        "closing bulk links with host:2 failed",
    ]


def test_after_a_failure_of_the_thread_the_next_use_starts_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: after a failure of the thread, the pool started no other one."""
    import time

    world = World(clock=time.monotonic, watch=True, idle_timeout_s=0.05)
    ended_threads: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", ended_threads.append)
    sweep = world.pool.sweep
    monkeypatch.setattr(world.pool, "sweep", lambda now: failing())
    with ended(world.pool):
        use(world, route_to("worker", "host:1"))
        wait_for(lambda: ended_threads, "the thread to fail")
        monkeypatch.setattr(world.pool, "sweep", sweep)
        wait_for(lambda: not world.pool._watching, "the pool to notice the failure")
        use(world, route_to("worker", "host:2"))
        wait_for(lambda: world.open == 0, "idle connections to be closed")


def test_shared_clients_are_closed_while_no_entry_is_open() -> None:
    """Regression: a worker kept an Aeron client after its last connection was closed."""
    waits = [5.0, None]
    times: list[float] = []
    world = World()
    world.pool = ConnectionPool(
        world.connect,
        clock=lambda: world.now,
        watch=False,
        close_shared=lambda: times.append(world.now) or waits.pop(0),
    )
    use(world, route_to("worker", "host:1"))
    use(world, route_to("worker", "host:2"))
    world.now += 1
    use(world, route_to("worker", "host:2"))
    assert world.after(IDLE_TIMEOUT_S - 1) == 1.0
    assert times == []
    assert world.after(1.0) == 5.0
    assert world.after(5.0) is None
    assert times == [world.now - 5.0, world.now]


def test_an_error_at_closing_shared_clients_does_not_end_a_sweep(caplog: pytest.LogCaptureFixture) -> None:
    world = World(close_shared=failing)
    use(world, route_to())
    assert world.after(IDLE_TIMEOUT_S) is None
    assert [record.message for record in caplog.records] == ["closing the shared Aeron clients failed"]


def test_the_thread_waits_for_shared_clients_until_the_pool_is_closed() -> None:
    import time

    shared = threading.Event()
    world = World(clock=time.monotonic, watch=True, idle_timeout_s=0.05, close_shared=lambda: shared.set() or 3600.0)
    with ended(world.pool):
        use(world, route_to())
        assert shared.wait(10)
        assert (world.open, world.pool._watching) == (0, True)
        world.pool.close()
        wait_for(lambda: not world.pool._watching, "the pool's thread to end")
        shared.clear()
        use(world, route_to())
        assert shared.wait(10)


FORKED = """
import os, sys, threading
from tests.unit.test_pool import World, call, use, route_to
from aeron_spark.pool import POOL, ConnectionPool
made = []
POOL.connect = lambda address, **options: made.append(World().connect(address)) or made[-1]
with POOL.borrow(route_to()) as sessions:
    call(sessions["host:1"])
    assert len(made) == 1 and POOL._watching
    with POOL._changed:  # as if another thread had locked it during the fork
        child = os.fork()
    if not child:
        assert threading.active_count() == 1
        assert call(sessions["host:1"]) == "host:1"  # over a new client
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


@pytest.mark.slow
def test_a_forked_child_does_not_use_the_parents_connections() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", FORKED], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_pool_of_the_process_closes_connections_after_60_idle_seconds() -> None:
    assert POOL._idle_timeout_s == IDLE_TIMEOUT_S == 60.0

"""A fair pool: shares take turns, none takes more than its threads, and the work of an ended owner is dropped."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aeron_spark.endpoint.fair_pool import GROW_S, FairPool
from tests.ending import LONG_TIMEOUT_S
from tests.remains import remains_in
from tests.unit.endpoint.endpoints import wait_for


class Gate:
    """Work that waits until a test lets it continue."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.used_s = 0.0
        self._lock = threading.Lock()
        self._open = threading.Semaphore(0)

    def __call__(self) -> None:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        assert self._open.acquire(timeout=LONG_TIMEOUT_S)
        with self._lock:
            self.running -= 1

    def let(self, count: int) -> None:
        self._open.release(count)


def await_running(pool: FairPool, gate: Gate, count: int) -> None:
    """Wait until so many pieces of work run; the pool gives an owner another thread when its last work takes long."""

    def has_grown() -> bool:
        pool.tick()
        return gate.running == count

    wait_for(has_grown)


@pytest.fixture
def pool() -> Iterator[FairPool]:
    made = FairPool(ThreadPoolExecutor(4, "aeron-spark-test-fair"), lambda: 2)
    yield made
    made.shutdown()


def test_a_changed_number_of_threads_of_a_share_applies_to_its_waiting_work(pool: FairPool) -> None:
    gate = Gate()
    for _ in range(10):
        pool.submit("one", gate)
    await_running(pool, gate, 2)
    pool.threads_per_share = lambda: 3
    await_running(pool, gate, 3)
    pool.threads_per_share = lambda: 1
    gate.let(5)
    await_running(pool, gate, 1)
    gate.let(5)
    wait_for(lambda: gate.running == 0)
    assert gate.most == 3


def test_one_owner_does_not_take_the_threads_of_the_others(pool: FairPool) -> None:
    greedy, done = Gate(), threading.Event()
    for _ in range(100):
        pool.submit("greedy", greedy)
    await_running(pool, greedy, 2)
    pool.submit("modest", done.set)
    assert done.wait(LONG_TIMEOUT_S)
    assert greedy.most == 2
    greedy.let(100)
    wait_for(lambda: not pool.waiting() and not greedy.running)  # between two pieces of work, none runs
    assert greedy.most == 2


def test_short_work_of_a_share_has_one_thread_and_long_work_gets_more() -> None:
    now = [0.0]
    pool, gate = FairPool(ThreadPoolExecutor(4, "aeron-spark-test-growth"), lambda: 2, lambda: now[0]), Gate()
    for _ in range(3):
        pool.submit("owner", gate)
    wait_for(lambda: gate.running == 1)
    pool.tick()
    assert (gate.running, pool.has_waiting) == (1, True)
    now[0] = GROW_S
    pool.submit("owner", gate)  # no tick is needed for work that comes when the last one takes long already
    wait_for(lambda: gate.running == 2)
    gate.let(4)
    wait_for(lambda: not pool.has_waiting and gate.running == 0)
    assert gate.most == 2
    pool.shutdown()


class Computation(Gate):
    """Work that uses the processor until a test lets it continue."""

    def __call__(self) -> None:
        with self._lock:
            self.running += 1
        while not self._open.acquire(blocking=False):
            self.used_s = time.thread_time()
        with self._lock:
            self.running -= 1


SOON_S = 2 * GROW_S


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time that is recent: the work of a test computes for some milliseconds, on any machine."""
    monkeypatch.setattr("aeron_spark.endpoint.fair_pool.RECENT_S", SOON_S)
    monkeypatch.setattr("aeron_spark.endpoint.fair_pool.COMPUTING_THREADS", 1)


@pytest.mark.usefixtures("soon")
def test_a_share_that_computes_has_one_thread_while_another_share_has_work() -> None:
    now, computation, waiting, other = [0.0], Computation(), Gate(), Gate()
    pool = FairPool(ThreadPoolExecutor(9, "aeron-spark-test-computing"), lambda: 3, lambda: now[0])
    for share, work in (("computes", computation), ("other", other), ("waits", waiting)):
        for _ in range(3):
            pool.submit(share, work)
    wait_for(lambda: (computation.running, other.running, waiting.running) == (1, 1, 1))
    begin = computation.used_s
    wait_for(lambda: computation.used_s > begin + 2 * GROW_S)
    now[0] = GROW_S
    pool.tick()
    wait_for(lambda: (other.running, waiting.running) == (2, 2))
    assert (computation.running, pool.waiting()) == (1, {None: 4})
    now[0] += SOON_S  # no other share has submitted work for so long
    pool.tick()
    wait_for(lambda: computation.running == 2)
    for gate in (computation, waiting, other):
        gate.let(3)
    wait_for(lambda: not pool._shares)
    pool.shutdown()


@pytest.mark.usefixtures("soon")
def test_the_past_of_a_share_counts_little() -> None:
    now, computation, waiting, done = [0.0], Computation(), Gate(), threading.Event()
    pool = FairPool(ThreadPoolExecutor(9, "aeron-spark-test-computing-now"), lambda: 9, lambda: now[0])
    pool.submit("key", waiting)
    wait_for(lambda: waiting.running == 1)
    now[0] = 1_000.0
    pool.submit("other", lambda: None)
    for work in (computation, waiting, waiting):
        pool.submit("key", work)
    wait_for(lambda: computation.running == 1)
    begin = computation.used_s
    wait_for(lambda: computation.used_s > begin + 2 * GROW_S)
    now[0] += GROW_S
    pool.tick()
    pool.submit("other", done.set)
    assert done.wait(LONG_TIMEOUT_S)
    assert pool.waiting() == {None: 2}
    computation.let(1)

    def has_grown_beside_another_share() -> bool:
        now[0] += SOON_S
        pool.submit("other", lambda: None)
        pool.tick()
        return waiting.running == 3

    wait_for(has_grown_beside_another_share)
    waiting.let(3)
    wait_for(lambda: not pool._shares)
    pool.shutdown()


def test_shares_take_turns() -> None:
    pool, order, gate = FairPool(ThreadPoolExecutor(1, "aeron-spark-test-turns"), lambda: 1), list[str](), Gate()
    pool.submit("first", gate)
    wait_for(lambda: gate.running == 1)
    for share, count in (("many", 3), ("few", 2), ("one", 1)):
        for _ in range(count):
            pool.submit(share, lambda share=share: order.append(share))  # type: ignore[misc]
    gate.let(1)
    wait_for(lambda: len(order) == 6)
    assert order == ["many", "few", "one", "many", "few", "many"]
    pool.shutdown()


def test_the_waiting_work_of_an_ended_share_is_dropped(pool: FairPool) -> None:
    gate, ran = Gate(), list[str]()
    for _ in range(2):
        pool.submit("ended", gate)
    await_running(pool, gate, 2)
    for _ in range(50):
        pool.submit("ended", lambda: ran.append("ended"))
    assert pool.drop("ended") == 50
    assert pool.drop("unknown") == 0
    gate.let(2)
    pool.submit("other", lambda: ran.append("other"))
    wait_for(lambda: ran == ["other"])
    wait_for(lambda: not pool._shares)


def test_a_share_that_was_dropped_while_it_waited_for_a_thread_has_no_second_turn() -> None:
    pool, blocking, gate = FairPool(ThreadPoolExecutor(1, "aeron-spark-test-dropped"), lambda: 1), Gate(), Gate()
    pool.submit("other", blocking)
    wait_for(lambda: blocking.running == 1)
    pool.submit("owner", gate)
    assert pool.drop("owner") == 1
    for _ in range(2):
        pool.submit("owner", gate)
    assert list(pool._ready) == ["owner"]
    blocking.let(1)
    gate.let(2)
    wait_for(lambda: not pool._shares)
    assert gate.most == 1
    pool.shutdown()


def test_the_owners_of_a_share_take_turns_and_end_separately() -> None:
    pool, order, gate = FairPool(ThreadPoolExecutor(2, "aeron-spark-test-owners"), lambda: 1), list[str](), Gate()
    pool.submit("key", gate, owner="first")
    wait_for(lambda: gate.running == 1)
    for owner, count in (("many", 3), ("few", 2), ("ended", 2)):
        for _ in range(count):
            pool.submit("key", lambda owner=owner: order.append(owner), owner=owner)  # type: ignore[misc]
    dropped = pool.drop("key", "ended")
    gate.let(1)
    wait_for(lambda: not pool._shares)
    pool.shutdown()
    assert (dropped, order) == (2, ["many", "few", "many", "few", "many"])


def test_several_owners_of_a_share_have_no_more_threads_than_one(pool: FairPool) -> None:
    gate = Gate()
    for number in range(6):
        pool.submit("key", gate, owner=number)
    await_running(pool, gate, 2)
    gate.let(6)
    wait_for(lambda: not pool._shares)
    assert gate.most == 2


def test_work_that_raises_does_not_stop_the_pool(pool: FairPool) -> None:
    done = threading.Event()

    def fail() -> None:
        raise ValueError("of the work")

    for _ in range(10):  # more than its threads: the waiting work depends on the end of the failing one
        pool.submit("owner", fail)
    pool.submit("owner", done.set)
    assert done.wait(LONG_TIMEOUT_S)


def test_a_pool_that_was_shut_down_takes_no_work(pool: FairPool) -> None:
    gate = Gate()
    for _ in range(10):
        pool.submit("owner", gate)
    await_running(pool, gate, 2)
    pool.shutdown()
    gate.let(2)
    with pytest.raises(RuntimeError):
        pool.submit("owner", gate)
    wait_for(lambda: gate.running == 0)


def test_the_unfinished_work_before_a_mark_excludes_later_finished_and_dropped_work(pool: FairPool) -> None:
    gate, later = Gate(), Gate()
    for owner in ("stays", "ends"):
        for _ in range(3):
            pool.submit(owner, gate)
    mark = pool.mark()
    await_running(pool, gate, 4)
    pool.submit("later", later)
    assert pool.unfinished(mark) == 6
    assert pool.drop("ends") == 1
    assert pool.unfinished(mark) == 5
    gate.let(5)
    wait_for(lambda: pool.unfinished(mark) == 0)
    wait_for(lambda: later.running == 1)
    assert pool.unfinished(pool.mark()) == 1
    later.let(1)
    wait_for(lambda: pool.unfinished(pool.mark()) == 0)


def test_a_pool_that_is_shut_down_forgets_the_work_that_waits(pool: FairPool) -> None:
    pool.threads_per_share = lambda: 1
    gate, mark = Gate(), pool.mark()
    pool.submit("one", gate)
    await_running(pool, gate, 1)
    for owner in ("one", "one", "two"):
        pool.submit(owner, gate)
    pool.shutdown()
    gate.let(2)
    wait_for(lambda: pool.unfinished(mark + 4) == 0, "all work to end or to be dropped")
    assert remains_in(pool) == {}


def test_waiting_work_is_counted_by_its_kind_until_it_runs_or_is_dropped(pool: FairPool) -> None:
    pool.threads_per_share = lambda: 1
    first, second = Gate(), Gate()
    pool.submit("one", first, kind="a")
    await_running(pool, first, 1)
    for kind in ("a", "b", "b", None):
        pool.submit("one", second, kind=kind)
    assert pool.waiting() == {"a": 1, "b": 2, None: 1}
    first.let(1)
    await_running(pool, second, 1)
    assert pool.waiting() == {"b": 2, None: 1}
    assert pool.drop("one") == 3
    assert pool.waiting() == {}
    second.let(1)
    await_running(pool, second, 0)

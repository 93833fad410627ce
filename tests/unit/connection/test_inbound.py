"""Work of one connection, in order, on a pool that runs a job when the test says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from aeron_spark.connection.inbound import SerialExecutor


class Pool(Executor):
    """Keeps what it is given until ``run``."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], object]] = []
        self.closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self.jobs.append(lambda: fn(*args, **kwargs))
        return Future()

    def run(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


def test_work_runs_in_order_and_one_job_of_the_pool_runs_all_of_it() -> None:
    pool, done = Pool(), list[int]()
    executor = SerialExecutor(pool, 100, lambda: None)
    for number in range(5):
        assert executor.submit(lambda number=number: done.append(number))
    executor.submit(lambda: executor.submit(lambda: done.append(6)))
    assert len(pool.jobs) == 1
    pool.run()
    assert done == [0, 1, 2, 3, 4, 6]
    executor.submit(lambda: done.append(7))
    pool.run()
    assert done[-1] == 7


def test_an_error_of_one_piece_of_work_is_logged_and_the_next_runs(caplog: pytest.LogCaptureFixture) -> None:
    pool, done = Pool(), list[int]()
    executor = SerialExecutor(pool, 100, lambda: None)

    def leave() -> None:
        raise SystemExit(3)

    executor.submit(leave)
    executor.submit(lambda: done.append(1))
    with caplog.at_level(logging.ERROR, "aeron_spark.endpoint"):
        pool.run()
    assert done == [1]
    assert "work of a connection raised an error" in caplog.text


def test_a_full_one_takes_more_and_says_once_when_it_is_less_than_half_full() -> None:
    pool, room = Pool(), list[int]()
    executor = SerialExecutor(pool, 100, lambda: room.append(len(weights)))
    weights = [60, 60, 30, 30]
    for weight in weights[:]:
        executor.submit(lambda: weights.pop(), weight)
    assert executor.full
    assert executor.beyond(79)
    assert not executor.beyond(80)
    pool.run()
    assert room == [1]  # behind the third: 30 of 100 are left
    assert not executor.full


def test_bytes_that_are_kept_beside_the_work_count_too() -> None:
    pool, room = Pool(), list[int]()
    executor = SerialExecutor(pool, 100, lambda: room.append(1))
    executor.weigh(150)
    assert executor.full
    executor.submit(lambda: executor.weigh(-150))
    pool.run()
    assert room == [1]


def test_after_the_pool_was_shut_down_nothing_is_promised() -> None:
    pool = Pool()
    executor = SerialExecutor(pool, 100, lambda: None)
    pool.closed = True
    assert not executor.submit(lambda: None)

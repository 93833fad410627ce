"""Delivery of one connection, in order, on a pool whose jobs the test runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from aeron_spark.endpoint.deliveries import SerialExecutor


class ManualPool(Executor):
    """Keeps jobs until ``run`` runs them."""

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


def test_work_runs_in_order_in_one_job_of_the_pool() -> None:
    pool, done = ManualPool(), list[int]()
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


def test_an_error_of_work_is_logged_and_later_work_runs(caplog: pytest.LogCaptureFixture) -> None:
    pool, done = ManualPool(), list[int]()
    executor = SerialExecutor(pool, 100, lambda: None)

    def leave() -> None:
        raise SystemExit(3)

    executor.submit(leave)
    executor.submit(lambda: done.append(1))
    with caplog.at_level(logging.ERROR, "aeron_spark.endpoint"):
        pool.run()
    assert done == [1]
    assert "delivery on a connection failed" in caplog.text


def test_a_full_executor_takes_more_work_and_calls_on_room_once_below_half() -> None:
    pool, room = ManualPool(), list[int]()
    executor = SerialExecutor(pool, 100, lambda: room.append(len(weights)))
    weights = [60, 60, 30, 30]
    for weight in weights[:]:
        executor.submit(lambda: weights.pop(), weight)
    assert executor.is_full
    assert executor.exceeds(79)
    assert not executor.exceeds(80)
    pool.run()
    assert room == [1]  # after the third: 30 of 100 bytes are left
    assert not executor.is_full


def test_added_weight_counts_towards_the_limit() -> None:
    pool, room = ManualPool(), list[int]()
    executor = SerialExecutor(pool, 100, lambda: room.append(1))
    executor.add_weight(150)
    assert executor.is_full
    executor.submit(lambda: executor.add_weight(-150))
    pool.run()
    assert room == [1]


def test_submit_returns_false_after_the_pool_was_shut_down() -> None:
    pool = ManualPool()
    executor = SerialExecutor(pool, 100, lambda: None)
    pool.closed = True
    for _ in range(3):
        assert not executor.submit(lambda: None, 60)
        assert executor.weight == 0, "refused work is counted"
    assert not executor.is_full
    pool.closed = False
    executor.submit(lambda: None)
    assert len(pool.jobs) == 1

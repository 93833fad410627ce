"""Futures get a result at their deadline unless they end before."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import Future
from typing import TypeVar

import pytest

from aeron_spark.endpoint.loop import _MAX_ENDED_DEADLINES, Loop
from aeron_spark.errors import AeronSparkError, WaitTimeout

T = TypeVar("T")


class Clock:
    """A virtual clock."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Ends(Loop):
    """A loop with a virtual clock, which counts the calls of ``wake``."""

    def __init__(self) -> None:
        self.virtual = Clock()
        super().__init__("test", self.virtual)
        self.wakes = 0

    def wake(self) -> None:
        self.wakes += 1

    def end_after(self, future: Future[T], outcome: T | AeronSparkError, seconds: float) -> None:
        self.end_at(future, outcome, self.virtual.now + seconds)

    def expire_after(self, seconds: float) -> None:
        self.virtual.now += seconds
        self.expire(self.virtual.now)


@pytest.fixture
def ends() -> Ends:
    return Ends()


def test_a_future_gets_its_result_at_its_deadline_and_not_before(ends: Ends) -> None:
    early, late = Future[str](), Future[str]()
    ends.end_after(late, "late", 20.0)
    ends.end_after(early, "early", 5.0)
    ends.expire_after(4.9)
    assert (early.done(), late.done(), ends.waits) == (False, False, 2)
    ends.expire_after(0.1)
    assert early.result(0) == "early"
    assert (late.done(), ends.waits) == (False, 1)
    ends.expire_after(15.0)
    assert late.result(0) == "late"
    assert ends.waits == 0


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_future_without_time_gets_its_result_at_once(ends: Ends, seconds: float) -> None:
    future = Future[bool]()
    ends.end_after(future, False, seconds)
    assert future.result(0) is False
    assert ends.waits == 0


def test_a_future_that_ends_before_its_deadline_keeps_its_result(ends: Ends) -> None:
    resolved, cancelled, was_done = Future[bool](), Future[bool](), Future[bool]()
    was_done.set_result(True)
    for future in (resolved, cancelled, was_done):
        ends.end_after(future, False, 5.0)
    resolved.set_result(True)
    cancelled.cancel()
    ends.expire_after(5.0)
    assert resolved.result(0) is True
    assert cancelled.cancelled()
    assert was_done.result(0) is True


def test_an_ended_future_is_forgotten_at_once(ends: Ends) -> None:
    """A reader that gets commits all the time adds a deadline for each."""
    waiting = Future[bool]()
    ends.end_after(waiting, False, 20.0)
    for _ in range(10 * _MAX_ENDED_DEADLINES):
        future = Future[bool]()
        ends.end_after(future, False, 20.0)
        future.set_result(True)
        known = weakref.ref(future)
        del future
        gc.collect(0)
        assert known() is None
    assert ends.waits == 1
    assert len(ends._heap) <= 2 + _MAX_ENDED_DEADLINES
    ends.expire_after(20.0)
    assert waiting.result(0) is False


def test_a_future_can_end_with_an_error(ends: Ends) -> None:
    future = Future[bool]()
    ends.end_after(future, WaitTimeout("waited 5 s for it"), 5.0)
    ends.expire_after(5.0)
    with pytest.raises(WaitTimeout, match="waited 5 s for it"):
        future.result(0)


def test_the_event_loop_is_woken_only_for_a_deadline_that_it_could_miss_while_it_is_idle(ends: Ends) -> None:
    ends.end_after(Future[bool](), False, 1.0)
    assert ends.wakes == 0
    ends.end_after(Future[bool](), False, 0.05)
    assert ends.wakes == 1

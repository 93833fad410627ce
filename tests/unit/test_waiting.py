"""A wait ends with the awaited value, or at its deadline with an error that has the awaited event."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from aeron_spark import waiting
from aeron_spark.errors import WaitTimeout
from aeron_spark.waiting import Deadline, fail, resolve, wait_for


class Clock:
    """A virtual clock that only ``sleep`` advances."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_error_of_a_deadline_has_the_awaited_event_and_the_last_state(clock: Clock) -> None:
    deadline = Deadline(0.25, "a subscriber", remedy="Start one.", clock=clock, sleep=clock.sleep)
    while deadline.remaining() > 0:
        deadline.idle("0 images")
    with pytest.raises(WaitTimeout) as error:
        deadline.idle("0 images")
    assert str(error.value) == "waited 0.25 s for a subscriber (0 images). Start one."
    assert clock.now - 100.0 == pytest.approx(0.25, abs=2 * waiting.MAX_SLEEP_S)


def test_sleeps_grow_up_to_the_maximum_and_progress_resets_them(clock: Clock) -> None:
    deadline = Deadline(1.0, "more", clock=clock, sleep=clock.sleep)
    for _ in range(10):
        deadline.idle()
    assert clock.slept[0] == waiting.MIN_SLEEP_S
    assert clock.slept == sorted(clock.slept)
    assert clock.slept[-1] == waiting.MAX_SLEEP_S
    deadline.progress()
    assert deadline.remaining() == 1.0
    deadline.idle()
    assert clock.slept[-1] == waiting.MIN_SLEEP_S


def test_the_remaining_time_is_never_negative(clock: Clock) -> None:
    deadline = Deadline(0.5, "more", clock=clock)
    clock.now += 2
    assert deadline.remaining() == 0.0


def test_a_wait_returns_the_first_value_that_is_neither_none_nor_false(clock: Clock) -> None:
    values = iter([None, False, 0])
    assert wait_for(lambda: next(values), 1.0, "a value") == 0


def test_the_error_of_a_wait_has_the_last_state(clock: Clock) -> None:
    with pytest.raises(WaitTimeout, match=r"waited 0\.1 s for the image \(2 images\)"):
        wait_for(lambda: None, 0.1, "the image", state=lambda: "2 images", clock=clock, sleep=clock.sleep)


def test_the_first_result_or_error_of_a_future_counts() -> None:
    resolved, failed, cancelled = Future[int](), Future[int](), Future[int]()
    cancelled.cancel()
    assert resolve(resolved, 1)
    assert fail(failed, ValueError("first"))
    for future in (resolved, failed, cancelled):
        assert not resolve(future, 2)
        assert not fail(future, ValueError("second"))
    assert resolved.result(0) == 1
    assert str(failed.exception(0)) == "first"
    assert cancelled.cancelled()

"""Waits with deadlines. The error of a wait has the awaited event, the time and the last state."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Final, TypeVar

from aeron_spark.errors import UsageError, WaitTimeout

T = TypeVar("T")

MIN_SLEEP_S: Final = 50e-6
MAX_SLEEP_S: Final = 1e-3  # a longer sleep would add to the latency of a micro-batch
# Python checks for signals before it blocks. A signal in between takes effect only after the block.
MAX_BLOCK_S: Final = 1.0


class Deadline:
    """A wait of ``seconds`` for the event ``awaited``; each :meth:`idle` sleeps, longer each time.

    :meth:`progress` restarts the wait, to limit the time between two events instead of the whole time. Tests pass a
    virtual ``clock`` and ``sleep``, both in seconds.
    """

    def __init__(
        self,
        seconds: float,
        awaited: str,
        *,
        remedy: str = "",
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.seconds = seconds
        self.awaited = awaited
        self.remedy = remedy
        self._clock = clock
        self._sleep = sleep
        self._end = clock() + seconds
        self._next_sleep_s = MIN_SLEEP_S

    def progress(self) -> None:
        """Restart the wait with its full time."""
        self._end = self._clock() + self.seconds
        self._next_sleep_s = MIN_SLEEP_S

    def remaining(self) -> float:
        """Return the remaining seconds, at least 0."""
        return max(0.0, self._end - self._clock())

    def idle(self, state: str = "") -> None:
        """Sleep briefly. Raises WaitTimeout, with ``state``, when the deadline has passed."""
        if self._clock() >= self._end:
            raise WaitTimeout(
                f"waited {self.seconds:g} s for {self.awaited}{f' ({state})' if state else ''}", remedy=self.remedy
            )
        self._sleep(self._next_sleep_s)
        self._next_sleep_s = min(MAX_SLEEP_S, self._next_sleep_s * 2)


def wait_for(
    poll: Callable[[], T | None],
    seconds: float,
    awaited: str,
    *,
    state: Callable[[], str] = str,
    remedy: str = "",
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """Return the first value of ``poll()`` that is neither None nor False. Raises WaitTimeout after ``seconds``."""
    deadline = Deadline(seconds, awaited, remedy=remedy, clock=clock, sleep=sleep)
    while True:
        value = poll()
        if value is not None and value is not False:
            return value
        deadline.idle(state())


def result_within(future: Future[T], seconds: float | None, awaited: str, *, remedy: str = "") -> T:
    """Return the future's result, or raise its error. ``None`` seconds: wait without a deadline.

    Raises WaitTimeout after ``seconds``, never a bare TimeoutError (in Python 3.10 a separate class), and UsageError if
    the program cancelled the future. The future's own error is raised unchanged, even a timeout. An exception of a
    signal handler ends the wait.
    """
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        block_s = MAX_BLOCK_S if end is None else min(MAX_BLOCK_S, max(0.0, end - time.monotonic()))
        try:
            return future.result(block_s)
        except CancelledError:
            raise UsageError(
                f"the wait for {awaited} was cancelled", remedy="Do not cancel a future that another call waits for."
            ) from None
        except (FutureTimeout, TimeoutError):
            if future.done() and not future.cancelled():
                return future.result()  # done since the timeout, or its own error is a timeout
            if seconds is not None and end is not None and time.monotonic() >= end:
                raise WaitTimeout(f"waited {seconds:.3g} s for {awaited}", remedy=remedy) from None


def resolve(future: Future[T], result: T) -> bool:
    """Set the result of a future unless it is done, also by another thread meanwhile; return whether it was set."""
    try:
        future.set_result(result)
    except InvalidStateError:
        return False
    return True


def fail(future: Future[T], error: BaseException) -> bool:
    """Set the error of a future unless it is done, also by another thread meanwhile; return whether it was set."""
    try:
        future.set_exception(error)
    except InvalidStateError:
        return False
    return True

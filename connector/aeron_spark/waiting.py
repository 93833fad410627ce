"""Waiting with a deadline. Every wait names what it waits for, and says the state it died in."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Final, TypeVar

from aeron_spark.errors import UsageError, WaitTimeout

T = TypeVar("T")

SHORTEST_SLEEP: Final = 50e-6  # seconds
LONGEST_SLEEP: Final = 1e-3  # seconds; longer would show in the latency of a micro-batch
# Python looks for signals and then blocks: a signal between the two wakes nothing, and waits for the next look.
LONGEST_BLOCK: Final = 1.0  # seconds


class Deadline:
    """A wait of ``seconds`` for ``what``; :meth:`idle` sleeps a little longer each time nothing happens.

    :meth:`progress` begins the wait anew, for waits that are bounded between signs of life rather than as a whole.
    ``clock`` gives seconds and ``sleep`` waits for some: a test gives virtual ones.
    """

    def __init__(
        self, seconds: float, what: str, *, remedy: str = "", clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:  # fmt: skip
        self.seconds = seconds
        self.what = what
        self.remedy = remedy
        self._clock = clock
        self._pause = sleep
        self._end = clock() + seconds
        self._sleep = SHORTEST_SLEEP

    def progress(self) -> None:
        """Something happened: the whole time is there again."""
        self._end = self._clock() + self.seconds
        self._sleep = SHORTEST_SLEEP

    def remaining(self) -> float:
        """Return the seconds left, never below zero."""
        return max(0.0, self._end - self._clock())

    def idle(self, state: str = "") -> None:
        """Sleep briefly, or raise WaitTimeout, naming ``state``, once the time is over."""
        if self._clock() >= self._end:
            raise WaitTimeout(
                f"waited {self.seconds:g} s for {self.what}{f' ({state})' if state else ''}", remedy=self.remedy
            )
        self._pause(self._sleep)
        self._sleep = min(LONGEST_SLEEP, self._sleep * 2)


def wait_for(
    poll: Callable[[], T | None], seconds: float, what: str, *, state: Callable[[], str] = str, remedy: str = "",
    clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], object] = time.sleep,
) -> T:  # fmt: skip
    """Return the first value of ``poll()`` that is neither None nor False; raise WaitTimeout after ``seconds``."""
    deadline = Deadline(seconds, what, remedy=remedy, clock=clock, sleep=sleep)
    while True:
        value = poll()
        if value is not None and value is not False:
            return value
        deadline.idle(state())


def result_within(future: Future[T], seconds: float | None, what: str, *, remedy: str = "") -> T:
    """Return what the future gives; raise WaitTimeout after ``seconds`` (None: wait until it is done).

    No bare TimeoutError leaves it, in Python 3.10 a class of its own. An error that the future itself was given is
    raised unchanged, if it is a time-out, too. Raises UsageError where the program cancelled the future. A signal
    handler may end the wait.
    """
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        left = LONGEST_BLOCK if end is None else min(LONGEST_BLOCK, max(0.0, end - time.monotonic()))
        try:
            return future.result(left)
        except CancelledError:
            raise UsageError(
                f"the wait for {what} was cancelled", remedy="Do not cancel a future that another call waits for."
            ) from None
        except (FutureTimeout, TimeoutError):
            if future.done() and not future.cancelled():
                return future.result()  # it has ended meanwhile, or its own error is a time-out
            if seconds is not None and end is not None and time.monotonic() >= end:
                raise WaitTimeout(f"waited {seconds:.3g} s for {what}", remedy=remedy) from None

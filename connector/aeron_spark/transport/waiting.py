"""Waiting with a deadline. Every wait names what it waits for, and says the state it died in."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from aeron_spark.errors import WaitTimeout

T = TypeVar("T")

SHORTEST_SLEEP: Final = 50e-6  # seconds
LONGEST_SLEEP: Final = 1e-3  # seconds; longer would show in the latency of a micro-batch


class Deadline:
    """A wait of ``seconds`` for ``what``; :meth:`idle` sleeps a little longer each time nothing happens.

    :meth:`progress` begins the wait anew, for waits that are bounded between signs of life rather than as a whole.
    """

    def __init__(
        self, seconds: float, what: str, *, remedy: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = seconds
        self.what = what
        self.remedy = remedy
        self._clock = clock
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
        time.sleep(self._sleep)
        self._sleep = min(LONGEST_SLEEP, self._sleep * 2)


def wait_for(
    poll: Callable[[], T | None], seconds: float, what: str, *, state: Callable[[], str] = str, remedy: str = ""
) -> T:
    """Return the first value of ``poll()`` that is neither None nor False; raise WaitTimeout after ``seconds``."""
    deadline = Deadline(seconds, what, remedy=remedy)
    while True:
        value = poll()
        if value is not None and value is not False:
            return value
        deadline.idle(state())

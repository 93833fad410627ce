"""Waits of tests that look at something from outside: another process, a query of Spark, a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from aeron_spark.errors import WaitTimeout

T = TypeVar("T")

# Each look is a call of a JVM, a question to another process, or a file that is read: a thousand of them a second, as
# the package's own waits make them, cost more processor time than what is waited for.
LOOK_INTERVAL_S: Final = 0.03


def look_for(
    poll: Callable[[], T | None],
    seconds: float,
    what: str,
    *,
    state: Callable[[], str] = str,
    interval_s: float = LOOK_INTERVAL_S,
) -> T:
    """Return the first value of ``poll()`` that is neither None nor False; raise WaitTimeout after ``seconds``.

    ``state`` is asked once, after the last look.
    """
    end = time.monotonic() + seconds
    while True:
        value = poll()
        if value is not None and value is not False:
            return value
        if time.monotonic() > end:
            found = state()
            raise WaitTimeout(f"waited {seconds:g} s for {what}{f' ({found})' if found else ''}")
        time.sleep(interval_s)

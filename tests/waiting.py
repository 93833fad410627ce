"""Polls slow conditions in tests, of another process, a Spark query or a file; and how busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from aeron_spark.errors import WaitTimeout

T = TypeVar("T")

# A poll calls a JVM or another process, or reads a file. A thousand polls per second, as in the package's own waits,
# cost more processor time than the awaited work.
POLL_INTERVAL_S: Final = 0.03
MEASURED_S: Final = 0.1


def poll_until(
    poll: Callable[[], T | None],
    seconds: float,
    what: str,
    *,
    state: Callable[[], str] = str,
    interval_s: float = POLL_INTERVAL_S,
) -> T:
    """Return the first value of ``poll()`` that is neither None nor False; raise WaitTimeout after ``seconds``.

    ``state`` returns a description for the error; it is called once, after the last poll.
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


def slowdown(
    clock: Callable[[], float] = time.monotonic, processor_clock: Callable[[], float] = time.thread_time
) -> float:
    """Return how many times longer than on an idle machine a computation takes now, at least 1.

    Computes for ``MEASURED_S`` of processor time. A thread that only waits does not notice other programs: the kernel
    prefers it.
    """
    begin, begin_computing = clock(), processor_clock()
    while (computed := processor_clock() - begin_computing) < MEASURED_S:
        pass
    return max(1.0, (clock() - begin) / computed)

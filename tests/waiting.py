"""For tests: polls slow conditions of processes, Spark queries and files; suspends processes; measures the load."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from aeron_spark.errors import WaitTimeout

T = TypeVar("T")

# A poll calls a JVM or another process, or reads a file. A thousand polls per second, as in the package's own waits,
# cost more processor time than the awaited work.
POLL_INTERVAL_S: Final = 0.03
MEASURED_S: Final = 0.1
SUSPEND_TIMEOUT_S: Final = 30.0
_STOPPED: Final = {"T", "Z", "X"}  # stopped, ended, or being removed


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


def suspend(pid: int) -> None:
    """Stop a process with SIGSTOP; return when none of its threads runs. On a busy machine that takes up to 20 ms."""
    os.kill(pid, signal.SIGSTOP)
    poll_until(lambda: _thread_states(pid) <= _STOPPED, SUSPEND_TIMEOUT_S, f"process {pid} to stop", interval_s=0.0005)


def _thread_states(pid: int) -> set[str]:
    states = set()
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            states.add(path.read_text().rpartition(")")[2].split()[0])
    return states


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

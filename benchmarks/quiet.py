"""Refuses to measure on a machine that does other work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

LOAD_LIMIT: Final = 0.5  # of the mean of one minute
WAIT_S: Final = 240.0  # the mean still has the load of `make setup` for some minutes
POLL_INTERVAL_S: Final = 5.0


class BusyMachineError(RuntimeError):
    """The machine does other work, so its figures would mean nothing."""


def wait_for_quiet(
    load: Callable[[], float], clock: Callable[[], float], sleep: Callable[[float], None], wait_s: float = WAIT_S
) -> float:
    """Wait until the load is within the limit, and return it.

    Raises BusyMachineError if it is not within ``wait_s`` seconds.
    """
    deadline = clock() + wait_s
    while (current := load()) > LOAD_LIMIT:
        if clock() >= deadline:
            raise BusyMachineError(
                f"this machine has a load of {current:.2f}, and did not come below {LOAD_LIMIT} within {wait_s:g} s: "
                "its figures would mean nothing. Stop the other programs, and run the benchmarks again. With `--quick` "
                "they run on a busy machine, with tiny sizes."
            )
        sleep(POLL_INTERVAL_S)
    return current

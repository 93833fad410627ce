from __future__ import annotations

import pytest

from benchmarks.quiet import LOAD_LIMIT, POLL_INTERVAL_S, BusyMachineError, wait_for_quiet


class Machine:
    """A machine whose load follows a list, with one entry for each poll."""

    def __init__(self, *loads: float) -> None:
        self.loads = list(loads)
        self.now_s = 100.0

    def load(self) -> float:
        return self.loads.pop(0) if len(self.loads) > 1 else self.loads[0]

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_quiet_machine_is_measured_at_once() -> None:
    machine = Machine(LOAD_LIMIT)
    assert wait_for_quiet(machine.load, machine.clock, machine.sleep) == LOAD_LIMIT
    assert machine.now_s == 100.0


def test_a_machine_that_becomes_quiet_is_measured_then() -> None:
    machine = Machine(2.0, 0.9, 0.2)
    assert wait_for_quiet(machine.load, machine.clock, machine.sleep) == 0.2
    assert machine.now_s == 100.0 + 2 * POLL_INTERVAL_S


def test_a_busy_machine_is_refused_after_the_wait() -> None:
    machine = Machine(LOAD_LIMIT + 0.01)
    with pytest.raises(BusyMachineError, match=r"a load of 0.51, and did not come below 0.5 within 60 s.*Stop"):
        wait_for_quiet(machine.load, machine.clock, machine.sleep, wait_s=60)
    assert machine.now_s == 160.0

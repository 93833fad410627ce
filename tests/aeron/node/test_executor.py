"""The executor thread of a node's driver sleeps until a channel needs it, unless a property sets its idle strategy."""

from __future__ import annotations

import time
from pathlib import Path

from aeron_spark import node

EXECUTOR = "aeron-executor"
WATCHED_S = 1.0
WAKE_UPS_A_SECOND = 300  # 100 are expected; Aeron's own strategy has nearly 1,000
FEW_WAKE_UPS_A_SECOND = 30  # 1 is expected of a thread that yields the processor, which is no sleep


def executor_of(pid: int) -> Path:
    """Return the folder of the thread in /proc."""
    return next(
        thread for thread in Path(f"/proc/{pid}/task").iterdir() if (thread / "comm").read_text().strip() == EXECUTOR
    )


def wake_ups(thread: Path) -> int:
    """Return how often the thread has slept."""
    found = dict(line.split(":", 1) for line in (thread / "status").read_text().splitlines())
    return int(found["voluntary_ctxt_switches"])


def wake_ups_a_second(pid: int) -> float:
    """Watch the executor of a node; return how often it slept, by the second."""
    thread = executor_of(pid)
    before, begun = wake_ups(thread), time.monotonic()
    time.sleep(WATCHED_S)
    return (wake_ups(thread) - before) / (time.monotonic() - begun)


def test_the_executor_of_an_idle_node_wakes_up_rarely(own_dir: Path) -> None:
    with node.ensure(own_dir, archive=False) as handle:
        assert wake_ups_a_second(handle.pid) < WAKE_UPS_A_SECOND


def test_a_property_sets_the_idle_strategy_of_the_executor(own_dir: Path) -> None:
    own = {"aeron.driver.async.executor.idle.strategy": "yield"}
    with node.ensure(own_dir, archive=False, properties=own) as handle:
        assert wake_ups_a_second(handle.pid) < FEW_WAKE_UPS_A_SECOND

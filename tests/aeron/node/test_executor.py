"""The executor thread of a node's driver sleeps until a channel needs it, unless a property sets its idle strategy."""

from __future__ import annotations

import time
from pathlib import Path

from aeron_spark import node
from aeron_spark.waiting import wait_for

EXECUTOR = "aeron-executor"
WATCHED_S = 0.5
WAKE_UPS_A_SECOND = 300  # 100 are expected; Aeron's own strategy has nearly 1,000
BUSY_NS = 100_000_000


def executor_of(pid: int) -> Path:
    """Return the folder of the thread in /proc."""
    return next(
        thread for thread in Path(f"/proc/{pid}/task").iterdir() if (thread / "comm").read_text().strip() == EXECUTOR
    )


def wake_ups(thread: Path) -> int:
    """Return how often the thread has slept."""
    found = dict(line.split(":", 1) for line in (thread / "status").read_text().splitlines())
    return int(found["voluntary_ctxt_switches"])


def busy_ns(thread: Path) -> int:
    """Return the processor time of the thread."""
    return int((thread / "schedstat").read_text().split()[0])


def test_the_executor_of_an_idle_node_wakes_up_rarely(node_dir: Path) -> None:
    with node.ensure(node_dir, archive=False) as handle:
        thread = executor_of(handle.pid)
        before, begun = wake_ups(thread), time.monotonic()
        time.sleep(WATCHED_S)
        assert wake_ups(thread) - before < WAKE_UPS_A_SECOND * (time.monotonic() - begun)


def test_a_property_sets_the_idle_strategy_of_the_executor(node_dir: Path) -> None:
    own = {"aeron.driver.async.executor.idle.strategy": "yield"}
    with node.ensure(node_dir, archive=False, properties=own) as handle:
        thread = executor_of(handle.pid)
        before = busy_ns(thread)
        wait_for(lambda: busy_ns(thread) - before > BUSY_NS, 30.0, "the executor thread to poll without sleeping")

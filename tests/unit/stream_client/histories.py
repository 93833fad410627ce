"""Runs a state machine of Hypothesis through many histories, and checks that they had enough of each event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def run_histories(
    machine: type[RuleBasedStateMachine], part: int, histories: int, folder: Path, least: Mapping[str, int]
) -> None:
    """Run so many histories, whose random numbers begin with ``part``.

    The machine has the folder as ``below``, and counts its events in ``counts``. A thousand histories must have at
    least the numbers of ``least``.
    """
    given = settings(
        max_examples=histories, stateful_step_count=8, deadline=None, database=None, derandomize=False,
        suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
    )  # fmt: skip
    counts: Counter[str] = Counter()
    seeded: Callable[[], RuleBasedStateMachine] = seed(part)(
        type(f"{machine.__name__}{part}", (machine,), {"below": folder, "counts": counts})
    )
    run_state_machine_as_test(seeded, settings=given)
    few = {event: counts[event] for event, number in least.items() if counts[event] < number * histories // 1_000}
    assert not few, f"{histories} histories had too few of these: {few}"

"""The demo from its first to its last step: two acts, one Spark."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rich.console import Console

from demo import act_one, act_two
from demo.flights import load
from demo.processes import workshop
from demo.session import session
from demo.stage import Stage
from demo.stopping import Stopping

ACTS: Final = ("one", "two")


def run(
    rows: int, seconds: float, picture: Path, console: Console, stopping: Stopping, acts: Sequence[str] = ACTS
) -> list[str]:
    """Run the demo with ``rows`` flights, sent over ``seconds`` in each act; return its last lines, or raise."""
    console.print(f"Loading {rows:,} flights that left New York City in 2013")
    flights = load(rows)
    last_lines = []
    with ExitStack() as stack:
        with stopping.held():
            place, aeron_dir = stack.enter_context(workshop())
        stage = Stage(flights, seconds, console, stopping, stack, place)
        receiver = act_one.start_subscriber(stage, aeron_dir) if "one" in acts else None
        console.print("Starting Spark")
        with ExitStack() as first_to_end:  # Spark ends before what it uses does
            with stopping.held():
                spark = first_to_end.enter_context(session(place))
                stopping.listen()  # Spark takes SIGINT
            if receiver is not None:
                last_lines.append(f"demo ok: {act_one.play(stage, spark, aeron_dir, receiver, picture)}")
            if "two" in acts:
                last_lines.insert(0, f"demo act two ok: {act_two.play(stage, spark)}")
    return last_lines

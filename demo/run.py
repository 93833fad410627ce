"""Runs the two acts of the demo in one Spark session."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rich.console import Console

from demo import act_one, act_two
from demo.flights import load
from demo.processes import demo_folder
from demo.session import session
from demo.stage import Stage
from demo.stopping import StopSignals

ACTS: Final = ("one", "two")


def run(
    rows: int, seconds: float, picture: Path, console: Console, stopping: StopSignals, acts: Sequence[str] = ACTS
) -> list[str]:
    """Run the demo with ``rows`` flights, which each act sends over ``seconds``. Return the lines to print at the end.

    Raises DemoError if a step fails or a result is wrong.
    """
    console.print(f"Loading {rows:,} flights that left New York City in 2013")
    flights = load(rows)
    last_lines = []
    with ExitStack() as stack:
        with stopping.deferred():
            folder, aeron_dir = stack.enter_context(demo_folder())
        stage = Stage(flights, seconds, console, stopping, stack, folder)
        receiver = act_one.start_subscriber(stage, aeron_dir) if "one" in acts else None
        console.print("Starting Spark")
        with ExitStack() as spark_stack:  # Spark ends before the processes that it uses
            with stopping.deferred():
                spark = spark_stack.enter_context(session(folder))
                stopping.install()  # Spark has replaced the handler of SIGINT
            if receiver is not None:
                last_lines.append(f"demo ok: {act_one.play(stage, spark, aeron_dir, receiver, picture)}")
            if "two" in acts:
                last_lines.insert(0, f"demo act two ok: {act_two.play(stage, spark)}")
    return last_lines

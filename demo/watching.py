"""Shows the progress of the sender and of Spark, and fails if both stop."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo import DemoError
from demo.flights import Day
from demo.processes import Process
from demo.queries import Queries

POLL_INTERVAL_S: Final = 0.2  # interval between two polls
STALL_TIMEOUT_S: Final = 120.0  # time without progress after which the demo fails


def watch(queries: Queries, source: Process, rows: int, bars: tuple[str, str], console: Console) -> dict[str, float]:
    """Show two progress bars until Spark has all rows. Return the sender's last progress line.

    Raises DemoError if neither makes progress for ``STALL_TIMEOUT_S``.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        tasks = [progress.add_task(f"{label:<23}", total=rows) for label in bars]
        progress_at = time.monotonic()
        before = (-1, -1)
        while True:
            ended = source.has_ended()
            queries.check()
            reported = last_progress(source)
            now = (int(reported.get("published", 0)), sum(count for _, count in queries.micro_batches()))
            if now[1] > 0:
                source.close_input()
            for task, count in zip(tasks, now, strict=True):
                progress.update(task, completed=count)
            if now != before:
                progress_at, before = time.monotonic(), now
            if ended and now[1] >= rows:
                return reported
            if time.monotonic() - progress_at > STALL_TIMEOUT_S:
                raise DemoError(
                    f"no progress for {STALL_TIMEOUT_S:g} s: {now[0]} rows were {bars[0]}, {now[1]} {bars[1]}"
                )
            time.sleep(POLL_INTERVAL_S)


def wait_for_progress(source: Process) -> None:
    """Wait for the first progress line of a process."""
    deadline = time.monotonic() + STALL_TIMEOUT_S
    while not last_progress(source):
        if source.has_ended() or time.monotonic() > deadline:
            raise DemoError(
                f"{source.name} printed no progress within {STALL_TIMEOUT_S:g} s: {' | '.join(source.lines()[-3:])}"
            )
        time.sleep(POLL_INTERVAL_S)


def last_progress(source: Process) -> dict[str, float]:
    """Return the last JSON object that a process printed, or an empty one."""
    lines = [line for line in source.lines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def throughput(queries: Queries, flights: pa.Table, published: Mapping[str, float], written: str) -> str:
    """Return a text with the throughput. Raises DemoError if Spark did not read while the flights were being sent."""
    batches = [(start, count) for start, count in queries.micro_batches() if count]
    meanwhile = sum(start < published["ended"] for start, _ in batches)
    if meanwhile < 2:
        raise DemoError(f"only {meanwhile} micro-batches were read while the flights were being published")
    # The first flights were read by a Spark session that had just started, so they are not measured.
    before, after = batches[0][1], sum(count for _, count in batches[1:])
    elapsed_s = time.time() - published["resumed"]
    return (
        f"Read in {len(batches)} micro-batches, {meanwhile} of them while the flights were being published.\n"
        f"First {before:,} flights, then {after:,} that were published in "
        f"{published['ended'] - published['resumed']:.1f} s and were {written} after {elapsed_s:.1f} s: "
        f"{after / elapsed_s:,.0f} rows/s, {flights.nbytes * after / flights.num_rows / elapsed_s / 1e6:.1f} MB/s"
    )


def equal_days(name: str, found: Mapping[str, Day], expected: Mapping[str, Day]) -> None:
    """Raise DemoError if the days differ."""
    wrong = sorted(day for day in found.keys() | expected.keys() if found.get(day) != expected.get(day))
    if wrong:
        day = wrong[0]
        raise DemoError(
            f"{name}: the result is wrong for {len(wrong)} of {len(expected)} days: "
            f"{day} is {found.get(day)}, expected {expected.get(day)}"
        )

"""Watching an act: how far the one who sends is, how far Spark is, and that both go on."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo import Failed
from demo.flights import Day
from demo.processes import Process
from demo.queries import Queries

POLL: Final = 0.2  # seconds between two looks
STALL: Final = 120.0  # seconds without a step forward, after which waiting makes no sense


def watch(queries: Queries, source: Process, rows: int, bars: tuple[str, str], console: Console) -> dict[str, float]:
    """Show how far both sides are until they have all rows, or no more come; return the sending side's last words."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        tasks = [progress.add_task(f"{what:<23}", total=rows) for what in bars]
        moved = time.monotonic()
        before = (-1, -1)
        while True:
            ended = source.ended()
            queries.check()
            said = last_words(source)
            now = (int(said.get("published", 0)), sum(count for _, count in queries.micro_batches()))
            if now[1] > 0:
                source.go_on()
            for task, count in zip(tasks, now, strict=True):
                progress.update(task, completed=count)
            if now != before:
                moved, before = time.monotonic(), now
            if ended and now[1] >= rows:
                return said
            if time.monotonic() - moved > STALL:
                raise Failed(f"nothing moved for {STALL:g} s: {now[0]} rows were {bars[0]}, {now[1]} {bars[1]}")
            time.sleep(POLL)


def await_words(source: Process) -> None:
    """Wait until it has said how far it is for the first time."""
    deadline = time.monotonic() + STALL
    while not last_words(source):
        if source.ended() or time.monotonic() > deadline:
            raise Failed(f"{source.name} said nothing within {STALL:g} s: {' | '.join(source.lines()[-3:])}")
        time.sleep(POLL)


def last_words(source: Process) -> dict[str, float]:
    """Return the last JSON object that it wrote; an empty one, where there is none yet."""
    lines = [line for line in source.lines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def throughput(queries: Queries, flights: pa.Table, published: Mapping[str, float], written: str) -> str:
    """Return in words how fast it was; raise Failed where not a part of it was read while others were being sent."""
    batches = [(began, count) for began, count in queries.micro_batches() if count]
    meanwhile = sum(began < published["ended"] for began, _ in batches)
    if meanwhile < 2:
        raise Failed(f"only {meanwhile} micro-batches were read while the flights were being published")
    # What came before the wait was read by a Spark that had just been started.
    before, after = batches[0][1], sum(count for _, count in batches[1:])
    took = time.time() - published["resumed"]
    return (
        f"Read in {len(batches)} micro-batches, {meanwhile} of them while it was being published.\n"
        f"First {before:,} flights, then {after:,} that were published in "
        f"{published['ended'] - published['resumed']:.1f} s and were {written} after {took:.1f} s: "
        f"{after / took:,.0f} rows/s, {flights.nbytes * after / flights.num_rows / took / 1e6:.1f} MB/s"
    )


def equal_days(what: str, found: Mapping[str, Day], expected: Mapping[str, Day]) -> None:
    """Raise Failed where the days differ."""
    wrong = sorted(day for day in found.keys() | expected.keys() if found.get(day) != expected.get(day))
    if wrong:
        day = wrong[0]
        raise Failed(
            f"{what} is wrong for {len(wrong)} of {len(expected)} days: "
            f"{day} is {found.get(day)} and should be {expected.get(day)}"
        )

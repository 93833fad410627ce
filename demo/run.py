"""The demo from its first to its last step."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo import Failed, subscriber
from demo.comparing import compare
from demo.flights import Day, by_day, load
from demo.picture import by_month, draw
from demo.processes import Process, workshop
from demo.queries import Pipeline, session
from demo.stopping import Stopping

CHANNEL: Final = "aeron:ipc"
FLIGHTS_STREAM: Final = "1001"
RESULTS_STREAM: Final = "1002"

POLL: Final = 0.2  # seconds between two looks
STALL: Final = 120.0  # seconds without a step forward, after which waiting makes no sense
FINISH: Final = 180.0  # seconds for the queries to come to the end of what is recorded


def run(rows: int, seconds: float, picture: Path, console: Console, stopping: Stopping) -> str:
    """Run the demo with ``rows`` flights, published over ``seconds``; return its last line, or raise."""
    console.print(f"Loading {rows:,} flights that left New York City in 2013")
    flights = load(rows)
    with ExitStack() as stack:
        with stopping.held():
            place, aeron_dir = stack.enter_context(workshop())
        console.print(
            "A media driver with archive runs, for this demo alone; starting a plain Aeron subscriber, and Spark"
        )
        with stopping.held():
            receiver = stack.enter_context(
                subscriber.start(aeron_dir, CHANNEL, int(RESULTS_STREAM), place / "subscriber.out")
            )
        with stopping.held():
            spark = stack.enter_context(session(place))
            stopping.listen()  # Spark takes SIGINT
        reached = {"aeronDir": aeron_dir, "channel": CHANNEL}
        pipeline = Pipeline(
            spark,
            place,
            {**reached, "streamId": FLIGHTS_STREAM},
            {**reached, "streamId": RESULTS_STREAM, "ack": "driver"},
        )
        pipeline.start()
        console.print("Spark waits for a stream that does not exist yet; starting the process that publishes it")
        with stopping.held():
            publisher = Process("the producer", _producer(aeron_dir, rows, seconds), place / "producer.out")
            producer = stack.enter_context(publisher)
        console.print("Its first flights come at once, the others when Spark has read those")
        published = _watch(pipeline, producer, rows, console)
        _tell_throughput(pipeline, flights, published, console)
        pipeline.stop()
        pipeline.finish(FINISH)
        console.print(
            "Stopped the queries, and let them go on from their checkpoints to the end: nothing may come twice"
        )
        sentence = _verify(pipeline, receiver, flights)
        days = _received(receiver)
        console.print(by_month(days))
        draw(days, picture)
        console.print(f"Chart: {picture}")
    return sentence


def _producer(aeron_dir: str, rows: int, seconds: float) -> list[str]:
    where = ["--aeron-dir", aeron_dir, "--channel", CHANNEL, "--stream-id", FLIGHTS_STREAM]
    return [sys.executable, "-m", "demo.producer", *where, "--rows", str(rows), "--seconds", str(seconds)]


def _watch(pipeline: Pipeline, producer: Process, rows: int, console: Console) -> dict[str, float]:
    """Show how far both sides are until they have all rows, or no more come; return the producer's last words."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bars = [
            progress.add_task(f"{what:<23}", total=rows) for what in ("published through Aeron", "written to Delta")
        ]
        moved = time.monotonic()
        before = (-1, -1)
        while True:
            ended = producer.ended()
            pipeline.check()
            said = _last_words(producer)
            now = (int(said.get("published", 0)), sum(count for _, count in pipeline.micro_batches()))
            if now[1] > 0:
                producer.go_on()
            for bar, count in zip(bars, now, strict=True):
                progress.update(bar, completed=count)
            if now != before:
                moved, before = time.monotonic(), now
            if ended and now[1] >= rows:
                return said
            if time.monotonic() - moved > STALL:
                raise Failed(f"nothing moved for {STALL:g} s: {now[0]} rows were published, {now[1]} came to Delta")
            time.sleep(POLL)


def _last_words(producer: Process) -> dict[str, float]:
    lines = [line for line in producer.lines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def _tell_throughput(pipeline: Pipeline, flights: pa.Table, published: Mapping[str, float], console: Console) -> None:
    batches = [(began, count) for began, count in pipeline.micro_batches() if count]
    meanwhile = sum(began < published["ended"] for began, _ in batches)
    if meanwhile < 2:
        raise Failed(f"only {meanwhile} micro-batches were read while the flights were being published")
    # What came before the wait was read by a Spark that had just been started.
    before, after = batches[0][1], sum(count for _, count in batches[1:])
    took = time.time() - published["resumed"]
    console.print(
        f"Read in {len(batches)} micro-batches, {meanwhile} of them while it was being published.\n"
        f"First {before:,} flights, then {after:,} that were published in "
        f"{published['ended'] - published['resumed']:.1f} s and were in Delta after {took:.1f} s: "
        f"{after / took:,.0f} rows/s, {flights.nbytes * after / flights.num_rows / took / 1e6:.1f} MB/s"
    )


def _verify(pipeline: Pipeline, receiver: Process, flights: pa.Table) -> str:
    """Return the demo's last line; raise Failed where anything differs from what was sent."""
    result = compare(flights, pipeline.flights())
    if not result.equal:
        raise Failed(f"the Delta table is not what was published: {result.sentence}")
    expected = by_day(flights)
    _equal("the days in Delta", pipeline.days(), expected)
    _until(lambda: _received(receiver) == expected, STALL)
    _equal("what the plain Aeron subscriber received", _received(receiver), expected)
    return f"demo ok: {result.sentence}"


def _received(receiver: Process) -> dict[str, Day]:
    receiver.ended()
    return subscriber.latest_days(subscriber.messages(receiver.lines()))


def _equal(what: str, found: dict[str, Day], expected: dict[str, Day]) -> None:
    wrong: list[Any] = sorted(day for day in found.keys() | expected.keys() if found.get(day) != expected.get(day))
    if wrong:
        day = wrong[0]
        raise Failed(
            f"{what} is wrong for {len(wrong)} of {len(expected)} days: "
            f"{day} is {found.get(day)} and should be {expected.get(day)}"
        )


def _until(done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(POLL)

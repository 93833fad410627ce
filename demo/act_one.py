"""The first act: a program publishes to Aeron, Spark processes the stream, a plain Aeron program receives results."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from demo import DemoError, subscriber
from demo.comparing import compare
from demo.direct import DirectQueries
from demo.flights import Day, by_day
from demo.picture import by_month, draw
from demo.processes import Process
from demo.stage import Stage
from demo.watching import POLL_INTERVAL_S, STALL_TIMEOUT_S, equal_days, throughput, watch

CHANNEL: Final = "aeron:ipc"
FLIGHTS_STREAM: Final = "1001"
RESULTS_STREAM: Final = "1002"
FINISH_TIMEOUT_S: Final = 180.0  # for the queries to reach the end of the recording


def start_subscriber(stage: Stage, aeron_dir: str) -> Process:
    """Start the plain Aeron subscriber that will receive the results."""
    stage.print("A media driver with an archive runs for this demo; starting a plain Aeron subscriber")
    output = stage.folder / "subscriber.out"
    return stage.start(lambda: subscriber.start(aeron_dir, CHANNEL, int(RESULTS_STREAM), output))


def play(stage: Stage, spark: SparkSession, aeron_dir: str, receiver: Process, picture: Path) -> str:
    """Run the act. Return a sentence with the result. Raises DemoError if a step fails or a result is wrong."""
    route = {"aeronDir": aeron_dir, "channel": CHANNEL}
    queries = DirectQueries(
        spark,
        stage.folder,
        {**route, "streamId": FLIGHTS_STREAM},
        {**route, "streamId": RESULTS_STREAM, "ack": "driver"},
    )
    queries.start()
    stage.print("Spark waits for a stream without a recording; starting the process that publishes it")
    rows = stage.flights.num_rows
    command = _producer(aeron_dir, rows, stage.seconds)
    producer = stage.start(lambda: Process("the producer", command, stage.folder / "producer.out"))
    stage.print("It publishes some flights first, and the others when Spark has read those")
    published = watch(queries, producer, rows, ("published through Aeron", "written to Delta"), stage.console)
    stage.print(throughput(queries, stage.flights, published, "in Delta"))
    queries.stop()
    queries.finish(FINISH_TIMEOUT_S)
    stage.print("Stopped the queries, and continued them from their checkpoints to the end: no row may be repeated")
    sentence = _verify(queries, receiver, stage)
    days = _received(receiver)
    receiver.end()
    stage.print(by_month(days))
    draw(days, picture)
    stage.print(f"Chart: {picture}")
    return sentence


def _producer(aeron_dir: str, rows: int, seconds: float) -> list[str]:
    arguments = ["--aeron-dir", aeron_dir, "--channel", CHANNEL, "--stream-id", FLIGHTS_STREAM]
    return [sys.executable, "-m", "demo.producer", *arguments, "--rows", str(rows), "--seconds", str(seconds)]


def _verify(queries: DirectQueries, receiver: Process, stage: Stage) -> str:
    """Return a sentence with the result. Raises DemoError if a result differs from the published flights."""
    result = compare(stage.flights, queries.flights())
    if not result.equal:
        raise DemoError(f"the Delta table differs from the published flights: {result.sentence}")
    expected = by_day(stage.flights)
    equal_days("the days in Delta", queries.days(), expected)
    _until(lambda: _received(receiver) == expected, STALL_TIMEOUT_S)
    equal_days("the results of the plain Aeron subscriber", _received(receiver), expected)
    return result.sentence


def _received(receiver: Process) -> dict[str, Day]:
    receiver.has_ended()
    return subscriber.latest_days(subscriber.messages(receiver.lines()))


def _until(done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL_S)

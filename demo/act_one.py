"""The first act: plain Aeron programs on both sides, and Spark between them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from demo import Failed, subscriber
from demo.comparing import compare
from demo.direct import DirectQueries
from demo.flights import Day, by_day
from demo.picture import by_month, draw
from demo.processes import Process
from demo.stage import Stage
from demo.watching import POLL, STALL, equal_days, throughput, watch

CHANNEL: Final = "aeron:ipc"
FLIGHTS_STREAM: Final = "1001"
RESULTS_STREAM: Final = "1002"
FINISH: Final = 180.0  # seconds for the queries to come to the end of what is recorded


def start_subscriber(stage: Stage, aeron_dir: str) -> Process:
    """Start the plain Aeron subscriber that will receive the results."""
    stage.say("A media driver with archive runs, for this demo alone; starting a plain Aeron subscriber")
    output = stage.place / "subscriber.out"
    return stage.start(lambda: subscriber.start(aeron_dir, CHANNEL, int(RESULTS_STREAM), output))


def play(stage: Stage, spark: SparkSession, aeron_dir: str, receiver: Process, picture: Path) -> str:
    """Play it; return what became of the flights, or raise Failed."""
    reached = {"aeronDir": aeron_dir, "channel": CHANNEL}
    queries = DirectQueries(
        spark,
        stage.place,
        {**reached, "streamId": FLIGHTS_STREAM},
        {**reached, "streamId": RESULTS_STREAM, "ack": "driver"},
    )
    queries.start()
    stage.say("Spark waits for a stream that does not exist yet; starting the process that publishes it")
    rows = stage.flights.num_rows
    command = _producer(aeron_dir, rows, stage.seconds)
    producer = stage.start(lambda: Process("the producer", command, stage.place / "producer.out"))
    stage.say("Its first flights come at once, the others when Spark has read those")
    published = watch(queries, producer, rows, ("published through Aeron", "written to Delta"), stage.console)
    stage.say(throughput(queries, stage.flights, published, "in Delta"))
    queries.stop()
    queries.finish(FINISH)
    stage.say("Stopped the queries, and let them go on from their checkpoints to the end: nothing may come twice")
    sentence = _verify(queries, receiver, stage)
    days = _received(receiver)
    receiver.end()
    stage.say(by_month(days))
    draw(days, picture)
    stage.say(f"Chart: {picture}")
    return sentence


def _producer(aeron_dir: str, rows: int, seconds: float) -> list[str]:
    where = ["--aeron-dir", aeron_dir, "--channel", CHANNEL, "--stream-id", FLIGHTS_STREAM]
    return [sys.executable, "-m", "demo.producer", *where, "--rows", str(rows), "--seconds", str(seconds)]


def _verify(queries: DirectQueries, receiver: Process, stage: Stage) -> str:
    """Return the result in words; raise Failed where anything differs from what was sent."""
    result = compare(stage.flights, queries.flights())
    if not result.equal:
        raise Failed(f"the Delta table is not what was published: {result.sentence}")
    expected = by_day(stage.flights)
    equal_days("the days in Delta", queries.days(), expected)
    _until(lambda: _received(receiver) == expected, STALL)
    equal_days("what the plain Aeron subscriber received", _received(receiver), expected)
    return result.sentence


def _received(receiver: Process) -> dict[str, Day]:
    receiver.ended()
    return subscriber.latest_days(subscriber.messages(receiver.lines()))


def _until(done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(POLL)

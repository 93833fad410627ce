"""A query reads each row once, although it stops, fails and restarts at many points of its batches."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.aeron.streams import TIMEOUT_S, PublishedRecording, Stream, numbered
from tests.spark.queries import (
    CollectingSink,
    read_stream,
    run_query,
    run_to_end,
    run_to_end_after_failure,
    wait_for_query,
)
from tests.spark.simulated_engine import Query


class SinkFailure(Exception):
    """The sink failed to write a batch."""


@pytest.mark.matrix("restart")
def test_a_query_from_the_latest_offset_loses_no_row_when_its_first_batch_fails(
    spark: SparkSession, stream: Stream, source: str, tmp_path: Path
) -> None:
    publisher = stream.publisher()
    publisher.send(numbered(0, 10))

    def fail(batch: int) -> None:
        raise SinkFailure(f"batch {batch}")

    seen = CollectingSink(before_batch=fail)
    frame = read_stream(spark, stream.options, source=source, startingOffsets="latest")
    with pytest.raises(StreamingQueryException, match="SinkFailure"):
        run_to_end(frame, tmp_path, seen, processingTime="0 seconds")
    assert not list((tmp_path / "commits").glob("[0-9]*")), "the first batch must have failed"
    publisher.send(numbered(10, 30))
    seen.before_batch = None
    run_to_end_after_failure(frame, tmp_path, seen)
    assert seen.numbers == list(range(10, 30))


def test_a_repeated_first_batch_has_the_same_rows_while_recordings_start_and_stop(stream: Stream, source: str) -> None:
    publisher = stream.publisher()
    publisher.send(numbered(0, 10))
    query = Query(stream.options, source=source, startingOffsets="latest")
    query.request_initial_offset()
    publisher.send(numbered(10, 14))
    stream.publisher().send(numbered(100, 103))
    for extra in range(3):
        assert query.plan_batch()
        assert sorted(query.read_planned_batch()) == [10, 11, 12, 13, 100, 101, 102], extra
        publisher.send(numbered(14 + extra, 15 + extra))
        stream.publisher().send(numbered(200 + extra, 201 + extra))
        query.restart()
    publisher.stop()
    query.restart()
    found = list(query.run_batches())
    assert sorted(found[0]) == [10, 11, 12, 13, 100, 101, 102]
    assert sorted(found[1]) == [14, 15, 16, 200, 201, 202]
    assert len(found) == 2


def test_an_empty_first_batch_that_is_repeated_keeps_the_initial_offset(stream: Stream, source: str) -> None:
    publisher = stream.publisher()
    publisher.send(numbered(0, 10))
    query = Query(stream.options, source=source, startingOffsets="latest")
    assert query.plan_batch()
    publisher.send(numbered(10, 14))
    for _ in range(2):
        query.restart()
        assert query.plan_batch()
        assert query.read_planned_batch() == []
    query.commit()
    query.restart()
    assert list(query.run_batches()) == [[10, 11, 12, 13]]


@pytest.mark.full("a dozen queries of Spark; the test below has more points of failure, without Spark")
def test_a_query_that_stops_and_fails_while_its_source_grows_reads_each_row_once(
    spark: SparkSession, stream: Stream, tmp_path: Path, rng: random.Random
) -> None:
    publisher = stream.publisher()
    total, finished = 400, threading.Event()

    def publish() -> None:
        for first in range(0, total, 5):
            publisher.send(numbered(first, first + 5))
            if finished.wait(0.02):
                return

    failing = set(rng.sample(range(1, 20), 5))
    failed: list[int] = []

    def fail_sometimes(batch: int) -> None:
        if batch in failing:
            failing.discard(batch)
            failed.append(batch)
            raise SinkFailure(f"batch {batch}")

    seen = CollectingSink(before_batch=fail_sometimes)
    publisher_thread = threading.Thread(target=publish)
    publisher_thread.start()
    try:
        stops = 0
        while len(seen.numbers) < total and stops < 40:
            count = len(seen.numbers) + rng.randrange(1, 120)
            with run_query(read_stream(spark, stream.options, maxRowsPerTrigger=17), tmp_path, seen) as query:
                try:
                    wait_for_query(query, "more rows", lambda: len(seen.numbers) >= min(count, total))  # noqa: B023
                except StreamingQueryException as error:
                    if "SinkFailure" not in str(error):
                        raise
            stops += 1
    finally:
        finished.set()
        publisher_thread.join(TIMEOUT_S)
    assert seen.numbers == list(range(total))
    assert failed
    assert stops > len(failed)


def test_a_query_that_restarts_at_random_points_reads_each_row_of_changing_recordings_once(
    stream: Stream, source: str, rng: random.Random
) -> None:
    written: list[int] = []
    read: dict[int, list[int]] = {}
    active = [stream.publisher()]
    stopped: list[PublishedRecording] = []
    query = Query(stream.options, source=source, record="never", maxRowsPerTrigger=9)

    def grow() -> None:
        publisher = rng.choice(active)
        count = rng.randrange(1, 12)
        values = range(len(written), len(written) + count)
        publisher.send(numbered(values.start, values.stop, rng.choice([10, 100, 3_000])))
        written.extend(values)

    def change() -> None:
        if len(active) > 1 and rng.random() < 0.5:
            publisher = active.pop(rng.randrange(len(active)))
            publisher.stop()
            stopped.append(publisher)
        elif len(active) < 4:
            active.append(stream.publisher())

    def step() -> None:
        """Run a batch, or restart the query before the batch, after its plan, or between its rows and its commit."""
        restart = rng.choice(["no", "no", "planned", "read", "idle"])
        if restart == "idle":
            query.restart()
        if not query.plan_batch():
            return
        if restart == "planned":
            query.restart()
            return
        found = query.read_planned_batch()
        assert len(found) <= 9
        assert sorted(read.setdefault(query.committed_batches, found)) == sorted(found), (
            "a repeated batch must have the same rows"
        )
        if restart == "read":
            query.restart()
            return
        query.commit()

    for _ in range(120):
        rng.choices([grow, change, step], weights=[4, 1, 6])[0]()
    # Extensions come last: the subscription that records all publications of the stream would record them twice.
    for publisher in active:
        publisher.stop()
    for publisher in [*stopped, *active][:3]:
        active = [stream.extend(publisher)]
        grow()
        step()
        active[0].stop()
    while query.plan_batch():
        found = query.read_planned_batch()
        assert sorted(read.setdefault(query.committed_batches, found)) == sorted(found)
        query.commit()
    assert sorted(number for batch in read.values() for number in batch) == written

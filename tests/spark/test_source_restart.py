"""Stops, failures and restarts at many points: every row once, whatever was planned, read or committed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from aeron_spark.node import NodeHandle
from tests.aeron.streams import TIMEOUT_S, PublishedRecording, Stream, numbered, open_stream
from tests.spark.queries import CollectingSink, read_stream, run_query, run_to_end, wait_for_query
from tests.spark.simulated_engine import Query


@pytest.fixture
def stream(node: NodeHandle) -> Iterator[Stream]:
    """A recorded stream that no other test uses."""
    for one in open_stream(node):
        yield one.record()


class SinkFailure(Exception):
    """The sink did not take a batch."""


def test_what_came_after_a_first_batch_that_failed_is_not_lost_though_latest_has_moved_on(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    publisher = stream.publisher()
    publisher.send(numbered(0, 10))

    def refuse(batch: int) -> None:
        raise SinkFailure(f"batch {batch}")

    seen = CollectingSink(before_batch=refuse)
    frame = read_stream(spark, stream.options, startingOffsets="latest")
    with pytest.raises(StreamingQueryException, match="SinkFailure"):
        run_to_end(frame, tmp_path, seen, processingTime="0 seconds")
    assert not list((tmp_path / "commits").glob("[0-9]*")), "it was the first batch that failed"
    publisher.send(numbered(10, 30))
    seen.before_batch = None
    run_to_end(frame, tmp_path, seen)
    assert seen.numbers == list(range(10, 30))


def test_a_first_batch_with_rows_is_the_same_each_time_it_is_repeated_while_recordings_come_and_stop(
    stream: Stream,
) -> None:
    publisher = stream.publisher()
    publisher.send(numbered(0, 10))
    query = Query(stream.options, startingOffsets="latest")
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


def test_an_empty_first_batch_that_failed_keeps_where_the_query_began(stream: Stream) -> None:
    publisher = stream.publisher()
    publisher.send(numbered(0, 10))
    query = Query(stream.options, startingOffsets="latest")
    assert query.plan_batch()
    publisher.send(numbered(10, 14))
    for _ in range(2):
        query.restart()
        assert query.plan_batch()
        assert query.read_planned_batch() == []
    query.commit()
    query.restart()
    assert list(query.run_batches()) == [[10, 11, 12, 13]]


@pytest.mark.full("a dozen queries of Spark; the test below drives the source by hand, and to more points")
def test_a_query_stopped_and_failed_while_its_source_grows_takes_each_row_once(
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
    growing = threading.Thread(target=publish)
    growing.start()
    try:
        stops = 0
        while len(seen.numbers) < total and stops < 40:
            wanted = len(seen.numbers) + rng.randrange(1, 120)
            with run_query(read_stream(spark, stream.options, maxRowsPerTrigger=17), tmp_path, seen) as query:
                try:
                    wait_for_query(query, "more rows", lambda: len(seen.numbers) >= min(wanted, total))  # noqa: B023
                except StreamingQueryException as error:
                    if "SinkFailure" not in str(error):
                        raise
            stops += 1
    finally:
        finished.set()
        growing.join(TIMEOUT_S)
    assert seen.numbers == list(range(total))
    assert failed
    assert stops > len(failed)


def test_every_row_comes_once_wherever_a_query_dies_and_whatever_its_recordings_do(
    stream: Stream, rng: random.Random
) -> None:
    written: list[int] = []
    taken: dict[int, list[int]] = {}
    active = [stream.publisher()]
    stopped: list[PublishedRecording] = []
    query = Query(stream.options, record="never", maxRowsPerTrigger=9)

    def grow() -> None:
        publishing = rng.choice(active)
        count = rng.randrange(1, 12)
        values = range(len(written), len(written) + count)
        publishing.send(numbered(values.start, values.stop, rng.choice([10, 100, 3_000])))
        written.extend(values)

    def change() -> None:
        if len(active) > 1 and rng.random() < 0.5:
            publishing = active.pop(rng.randrange(len(active)))
            publishing.stop()
            stopped.append(publishing)
        elif len(active) < 4:
            active.append(stream.publisher())

    def step() -> None:
        """Run a batch, or die before it, in it, or after it and before it was committed."""
        dies = rng.choice(["no", "no", "planned", "read", "idle"])
        if dies == "idle":
            query.restart()
        if not query.plan_batch():
            return
        if dies == "planned":
            query.restart()
            return
        found = query.read_planned_batch()
        assert len(found) <= 9
        assert sorted(taken.setdefault(query.committed_batches, found)) == sorted(found), (
            "a batch is the same when it is repeated"
        )
        if dies == "read":
            query.restart()
            return
        query.commit()

    for _ in range(120):
        rng.choices([grow, change, step], weights=[4, 1, 6])[0]()
    # What records every publication of the stream would record an extension twice: those come at the end.
    for publishing in active:
        publishing.stop()
    for publishing in [*stopped, *active][:3]:
        active = [stream.extend(publishing)]
        grow()
        step()
        active[0].stop()
    while query.plan_batch():
        found = query.read_planned_batch()
        assert sorted(taken.setdefault(query.committed_batches, found)) == sorted(found)
        query.commit()
    assert sorted(number for batch in taken.values() for number in batch) == written

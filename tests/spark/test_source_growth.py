"""Recordings that start, stop or are extended while a query runs, and more of them than an archive replays at once."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from aeron_spark.aeron.archive import replay
from aeron_spark.node import NodeHandle
from tests.aeron.streams import TIMEOUT_S, Stream, number, numbered, own_node
from tests.programs import start_python
from tests.spark.queries import CollectingSink, read_batch, read_stream, run_query, wait_for_query
from tests.spark.simulated_engine import Query
from tests.waiting import poll_until

# Publishes numbers from argv[3] to argv[4] on a recorded stream, waits until they are recorded, then waits for a line.
PUBLISHER: Final = """
import sys
from aeron_spark import node
from tests.aeron.streams import Stream, numbered
with node.ensure(sys.argv[1]) as handle:
    stream = Stream(handle)
    stream.id = int(sys.argv[2])
    stream.publisher().send(numbered(int(sys.argv[3]), int(sys.argv[4])))
    print("recorded", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    """A node whose archive replays one recording at a time."""
    with own_node(run_name, max_replays=1, term_length="64k", ipc_term_length="64k") as handle:
        yield handle


def start_publisher(stream: Stream, first: int, last: int) -> subprocess.Popen[str]:
    """Start a publisher in a separate process; return after all its messages are recorded."""
    arguments = (stream.handle.aeron_dir, str(stream.id), str(first), str(last))
    process = start_python(PUBLISHER, *arguments)
    output = process.stdout.readline()
    assert output == "recorded\n", output + process.stdout.read()
    return process


def test_a_running_query_reads_recordings_that_start_stop_and_are_extended_once(
    spark: SparkSession, stream: Stream, source: str, tmp_path: Path
) -> None:
    seen = CollectingSink()
    frame = read_stream(spark, stream.options, source=source, record="never", maxRowsPerTrigger=40)
    with run_query(frame, tmp_path, seen) as query:
        wait_for_query(query, "the first trigger", lambda: query.status["message"] == "Waiting for data to arrive")
        first = stream.publisher()
        first.send(numbered(0, 100))
        second = stream.publisher()
        second.send(numbered(100, 150))
        wait_for_query(query, "both recordings", lambda: len(seen.numbers) >= 150)
        first.stop()
        with start_publisher(stream, 150, 200) as process:
            process.kill()
        wait_for_query(query, "the recording of a killed publisher", lambda: len(seen.numbers) >= 200)
        second.send(numbered(200, 210))
        extended = stream.extend(first)
        extended.send(numbered(210, 260))
        wait_for_query(query, "the extension", lambda: len(seen.numbers) >= 260)
        end = query.recentProgress[-1].sources[0].endOffset
    assert seen.numbers == list(range(260))
    assert max(seen.sizes) <= 40
    assert first.key in end


def test_each_run_reads_the_extension_since_the_last_run(stream: Stream, source: str) -> None:
    publisher = stream.publisher()
    publisher.send(numbered(0, 10))
    query = Query(stream.options, source=source, record="never")
    for run in (1, 2, 3):
        publisher.stop()
        assert query.run_available_now() == [list(range(10 * run - 10, 10 * run))]
        if run < 3:
            publisher = stream.extend(publisher)
            publisher.send(numbered(10 * run, 10 * run + 10))


def test_an_offset_omits_a_finished_recording_and_has_it_again_after_an_extension(stream: Stream, source: str) -> None:
    publisher = stream.publisher()
    publisher.send(numbered(0, 3))
    query = Query(stream.options, source=source, record="never")
    assert query.run_batch() == [0, 1, 2]
    assert publisher.key in query.last_offset["recordings"]
    publisher.stop()
    other = stream.publisher()
    other.send(numbered(3, 4))
    assert query.run_batch() == [3]
    assert set(query.last_offset["recordings"]) == {other.key}
    assert query.last_offset["done"]
    again = stream.extend(publisher)
    again.send(numbered(4, 6))
    assert query.run_batch() == [4, 5]
    assert publisher.key in query.last_offset["recordings"]
    again.stop()
    query.restart()
    assert query.run_batch() is None


def test_an_available_now_run_leaves_later_recordings_to_the_next_run(stream: Stream, source: str) -> None:
    stream.publisher().send(numbered(0, 10))
    query = Query(stream.options, source=source, maxRowsPerTrigger=4)
    query.reader.prepareForTriggerAvailableNow()
    assert query.run_batch() == [0, 1, 2, 3]
    late = stream.publisher()
    late.send(numbered(100, 103))
    assert list(query.run_batches()) == [[4, 5, 6, 7], [8, 9]]
    assert query.run_available_now() == [[100, 101, 102]]


@pytest.mark.parametrize("count", [8, pytest.param(50, marks=pytest.mark.full("50 tasks; eight queue as well"))])
def test_parallel_tasks_queue_at_an_archive_that_replays_one_recording_at_a_time(
    spark: SparkSession, stream: Stream, count: int
) -> None:
    publishers = [stream.publisher(**{"term-length": "64k", "sparse": "true"}) for _ in range(count)]
    for index, publisher in enumerate(publishers):
        # The first recording is longer than a replay's window, so its replay below cannot end by itself.
        publisher.send(numbered(100 * index, 100 * index + 20, 100 if index else 5_000))
    # Reading files would need no replay of the archive.
    frame = read_batch(spark, stream.options, minPartitions=count, readPath="replay")
    assert frame.rdd.getNumPartitions() >= count
    found: list[int] = []
    tracker = spark.sparkContext.statusTracker()
    first = publishers[0]
    with replay(stream.archive, first.descriptor, 0, first.position, timeout=TIMEOUT_S):  # the only replay
        reader = threading.Thread(target=lambda: found.extend(_numbers(frame)), daemon=True)
        reader.start()
        poll_until(
            lambda: any(
                (stage := tracker.getStageInfo(active)) is not None and stage.numActiveTasks == 2
                for active in tracker.getActiveStageIds()
            ),
            TIMEOUT_S,
            "two tasks in the queue",
        )
        assert not found
    reader.join(TIMEOUT_S)
    assert sorted(found) == [100 * index + n for index in range(count) for n in range(20)]


def _numbers(frame: DataFrame) -> list[int]:
    return [number(row.value) for row in frame.select("value").collect()]

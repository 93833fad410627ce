"""Reads of raw messages by both sources: ``aeron``, in Python, and ``aeron-jvm``, inside Spark's JVM.

A test with the fixture ``source`` runs on both. Only on ``aeron-jvm`` run those of column pruning, filters, statistics
and metrics, which need no option there, and the refusals of what it does not read.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from aeron_spark.direct.archive_recordings import is_running
from aeron_spark.log.planning import PACK_BYTES
from aeron_spark.node import NodeHandle, status
from aeron_spark.waiting import wait_for
from tests.aeron.streams import (
    TIMEOUT_S,
    Stream,
    close_client,
    number,
    numbered,
    open_stream,
    own_node,
)
from tests.ports import free_port
from tests.spark.conftest import SOURCES
from tests.spark.queries import CollectingSink, read_batch, read_stream, run_query, run_to_end, wait_for_query
from tests.spark.two_recordings import ALL, TwoRecordings, two_recordings

JVM = "aeron-jvm"
FAILURES = (PySparkException, Py4JError)  # PySpark does not convert the error of a task in Java
SEGMENT_LENGTH = 64 * 1024


@pytest.fixture(scope="module")
def two(node: NodeHandle) -> Iterator[TwoRecordings]:
    """Two recordings, which no test changes, the first one with publish times in nanoseconds, also before 1970."""
    yield from two_recordings(node, [number * 1_000_000_007 - 3_000_000_001 for number in range(20)])


def numbers(frame: DataFrame) -> list[int]:
    return sorted(number(row.value) for row in frame.select("value").collect())


def sorted_rows(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row.recordingId, row.position))


def error_of(frame: DataFrame) -> str:
    """Return the text of the error with which a query fails, without the name of its class."""
    with pytest.raises(FAILURES) as raised:
        frame.collect()
    return str(raised.value)


@pytest.mark.parametrize("times", [None, "reserved-ns", "reserved-ms", "3", "4990"])
@pytest.mark.matrix("aeron-jvm")
def test_both_sources_return_equal_rows_in_all_columns(
    spark: SparkSession, two: TwoRecordings, times: str | None
) -> None:
    more = {} if times is None else {"timestampFrom": times}
    expected, found = (sorted_rows(read_batch(spark, two.options, source=one, **more)) for one in SOURCES)
    assert found == expected
    assert [number(row.value) for row in found] == ALL
    assert {row.position for row in found if row.recordingId == two.first.recording_id} == {
        two.positions[n] for n in range(20)
    }


@pytest.mark.parametrize("read_path", ["files", "replay"])
def test_segment_files_and_replays_have_the_same_rows(
    spark: SparkSession, two: TwoRecordings, source: str, read_path: str
) -> None:
    frame = read_batch(spark, two.options, source=source, readPath=read_path)
    assert [number(row.value) for row in sorted_rows(frame)] == ALL


def test_offsets_bounds_and_sessions_select_the_same_messages(
    spark: SparkSession, two: TwoRecordings, source: str
) -> None:
    at, short, full = two.positions, str(two.first.recording_id), two.second.key

    def read(**options: object) -> list[int]:
        return numbers(read_batch(spark, two.options, source=source, **options))

    start, end = json.dumps({short: at[17], full: at[102]}), json.dumps({full: at[104]})
    assert read(startingOffsets=start, endingOffsets=end) == [17, 18, 19, 102, 103]
    assert read(startPosition=at[9], endPosition=at[10] + 2_000) == [9, 10]
    assert read(startPosition=at[7] + 1, endPosition=at[9] + 1) == [8, 9]
    assert read(sessionIds=two.second.publication.session_id) == list(range(100, 105))
    # number 10 has the time 7.000000069 s; those of the second recording have 0
    time = {"startingTimestamp": "1970-01-01T00:00:07.00000007", "timestampFrom": "reserved-ns"}
    assert read(**time) == list(range(11, 20))
    time["endingTimestamp"] = time.pop("startingTimestamp")
    assert read(**time) == [*range(11), *range(100, 105)]


ERRORS = {
    "another stream id": {"streamId": "1999999"},
    "a position inside a message": {"startingOffsets": {"first": 32}},
    "a position outside of the recording": {"startingOffsets": {"first": 1 << 30}},
    "another recording": {"endingOffsets": {"9999": 0}},
    "an end before the start": {"startingOffsets": {"first": "number 7"}, "endingOffsets": {"first": 0}},
    "a bad value": {"readPath": "fles"},
    "columns of .schema": {"schema": "valeu BINARY"},
}


@pytest.mark.parametrize("options", ERRORS)
def test_both_sources_have_the_same_error_texts(spark: SparkSession, two: TwoRecordings, options: str) -> None:
    texts: dict[str, object] = {}
    for name, value in ERRORS[options].items():
        if isinstance(value, dict):
            texts[name] = json.dumps(
                {
                    str(two.first.recording_id) if key == "first" else key: two.positions[7]
                    if position == "number 7"
                    else position
                    for key, position in value.items()
                }
            )
        else:
            texts[name] = value
    found = {}
    for one in SOURCES:
        reader = spark.read.format(one).options(**{"payload": "raw", **two.options})
        if "schema" in texts:
            reader = reader.schema(str(texts["schema"]))
        more = {name: str(text) for name, text in texts.items() if name != "schema"}
        with pytest.raises(FAILURES) as raised:
            reader.options(**more).load().collect()
        found[one] = str(raised.value)
    # Spark writes the class of the error, and a Python worker its stack, around the text.
    text = re.sub(r"^[\w.]+: ", "", found[JVM].split("\n", 1)[0])
    assert len(text) > 40
    assert text in found["aeron"]


def test_a_recorded_stream_without_messages_has_no_rows(spark: SparkSession, stream: Stream, source: str) -> None:
    assert numbers(read_batch(spark, stream.options, source=source)) == [], "there is no publisher yet"
    stream.publisher()
    assert numbers(read_batch(spark, stream.options, source=source)) == [], "its publisher has sent nothing"


def test_min_partitions_splits_a_recording_at_terms(spark: SparkSession, stream: Stream, source: str) -> None:
    stream.publisher().send(numbered(0, 900, 1_000))
    frame = read_batch(spark, stream.options, source=source, minPartitions=3)
    assert frame.rdd.getNumPartitions() == 3
    assert numbers(frame) == list(range(900))


@pytest.fixture(scope="module")
def other_node(run_name: str) -> Iterator[NodeHandle]:
    """A node with small segments, which a test can purge and damage, and with an archive that UDP clients reach."""
    control = f"127.0.0.1:{free_port()}"
    with own_node(run_name, control=control, term_length="64k", ipc_term_length="64k", segment_length="64k") as handle:
        yield handle


@pytest.fixture
def other_stream(other_node: NodeHandle) -> Iterator[Stream]:
    """A recorded stream of the other node."""
    for one in open_stream(other_node):
        yield one.record()


def test_a_damaged_frame_fails_the_query_or_the_rest_of_its_term_is_left_out(
    spark: SparkSession, other_node: NodeHandle, other_stream: Stream, source: str
) -> None:
    publisher = other_stream.publisher()
    positions = publisher.send(numbered(0, 300, 1_000))
    damaged = next(index for index, at in enumerate(positions) if at > SEGMENT_LENGTH) + 5
    at = positions[damaged]
    base = at - at % SEGMENT_LENGTH
    with (Path(other_node.archive_dir) / f"{publisher.recording_id}-{base}.rec").open("r+b") as file:
        file.seek(at - base + 100)
        file.write(b"\xff")
    text = error_of(read_batch(spark, other_stream.options, source=source))
    assert f"is damaged at position {at}, the recording ends at {publisher.position}" in text
    found = numbers(read_batch(spark, other_stream.options, source=source, failOnDataLoss=False))
    kept = [index for index, one in enumerate(positions) if one < at or one >= base + SEGMENT_LENGTH]
    assert found == kept


def test_several_archives_are_read_together_one_by_replay_over_udp(
    spark: SparkSession, node: NodeHandle, stream: Stream, other_node: NodeHandle, source: str
) -> None:
    other = Stream(other_node)
    other.id = stream.id
    stream.publisher().send(numbered(0, 20))
    publisher = other.record().publisher()
    publisher.send(numbered(100, 120))
    assert other_node.settings is not None
    remote = f"aeron:udp?endpoint={other_node.settings.control}|alias=desk"
    frame = read_batch(spark, stream.options, source=source, archive=f"embedded,{remote}")
    assert numbers(frame) == [*range(20), *range(100, 120)]
    start = json.dumps({f"desk/{publisher.recording_id}": publisher.position})
    frame = read_batch(spark, stream.options, source=source, archive=f"embedded,{remote}", startingOffsets=start)
    assert numbers(frame) == list(range(20))
    other.close()


def plan_of(frame: DataFrame) -> str:
    jvm = frame._jdf.queryExecution()
    return str(jvm.executedPlan().toString())


def read_messages(frame: DataFrame) -> int:
    """Execute a query, and return the metric ``messages`` of its scan."""
    frame.collect()
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    return int(leaves.head().metrics().apply("messages").value())


def test_filters_bound_what_the_source_reads_and_do_not_stay_for_the_next_query(
    spark: SparkSession, two: TwoRecordings
) -> None:
    at, other = two.positions, two.second.publication.session_id
    frame = read_batch(spark, two.options, source=JVM)
    for condition, wanted, most in (
        (f"position >= {at[18]} and recordingId = {two.first.recording_id}", [18, 19], 2),
        (f"position = {at[11]} and recordingId in ({two.first.recording_id}, -1, null)", [11], 1),
        (f"{at[2]} > position and sessionId = {other}", [100, 101], 2),
        (f"position <= {at[2]} and position > {at[0]}", [1, 2, 101, 102], 6),
        (f"sessionId in ({other}, 1) and reservedValue = 0", [100, 101, 102, 103, 104], 5),
        (f"sessionId = {other} or position < 0", [100, 101, 102, 103, 104], 25),
        (f"position <= {(1 << 63) - 1}", ALL, 25),
        (f"position > {1 << 40}", [], 0),
    ):
        found = frame.where(condition)
        assert numbers(found) == wanted, condition
        assert read_messages(found.select("value")) <= most, condition
    assert numbers(frame) == ALL


def test_a_query_reads_only_the_columns_that_it_uses(spark: SparkSession, two: TwoRecordings) -> None:
    frame = read_batch(spark, two.options, source=JVM)
    assert "BatchScan aeron-jvm[position#" in plan_of(frame.select("position"))
    assert "BatchScan aeron-jvm[]" in plan_of(frame.groupBy().count())
    assert frame.count() == len(ALL)
    assert frame.agg(f.sum(f.length("value"))).first() == Row(24 * 100 + 5_000)


def test_statistics_are_the_bytes_of_the_ranges(spark: SparkSession, two: TwoRecordings) -> None:
    frame = read_batch(spark, two.options, source=JVM, startPosition=two.positions[18])
    size = frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    assert int(str(size)) == two.first.position - two.positions[18]
    assert size < PACK_BYTES


def test_a_view_of_sql_reads_a_stream(spark: SparkSession, two: TwoRecordings) -> None:
    options = ", ".join(f"{name} '{text}'" for name, text in {**two.options, "payload": "raw"}.items())
    spark.sql(f"CREATE TEMPORARY VIEW jvm_stream USING `{JVM}` OPTIONS ({options})")
    assert numbers(spark.table("jvm_stream")) == ALL
    spark.catalog.dropTempView("jvm_stream")


def test_a_purge_between_planning_and_reading_is_a_loss(spark: SparkSession, other_stream: Stream) -> None:
    publisher = other_stream.publisher()
    positions = publisher.send(numbered(0, 300, 1_000))
    frames = {
        fails: read_batch(spark, other_stream.options, source=JVM, failOnDataLoss=fails) for fails in (True, False)
    }
    for frame in frames.values():
        frame._jdf.queryExecution().executedPlan().execute()  # plans the partitions
    start = 2 * SEGMENT_LENGTH
    other_stream.archive.purge_segments(publisher.recording_id, start)
    assert f"was purged: the query's next position is 0, but the recording begins at {start} now" in error_of(
        frames[True]
    )
    assert numbers_of_rows(frames[False]) == [index for index, at in enumerate(positions) if at >= start]


def numbers_of_rows(frame: DataFrame) -> list[int]:
    """Return the numbers by the plan of the frame itself, which ``select`` would replace."""
    return sorted(number(row.value) for row in frame.collect())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"payload": "framed"}, "does not read payload=framed yet. Use format('aeron')"),
        ({"server": "feeds.example:20121", "stream": "flights"}, "only the direct route"),
    ],
)
def test_the_source_refuses_by_name_what_it_does_not_read(
    spark: SparkSession, two: TwoRecordings, options: dict[str, str], text: str
) -> None:
    with pytest.raises(FAILURES) as raised:
        read_batch(spark, two.options, source=JVM, **options).collect()
    assert text in str(raised.value)


def test_a_checkpoint_goes_from_one_source_to_the_other_after_each_batch(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    """Each second batch is repeated by the other source: its rows were written, but its commit was lost."""
    publisher = stream.publisher()
    seen = CollectingSink()
    for run in range(4):
        publisher.send(numbered(10 * run, 10 * run + 10))
        if run == 2:
            publisher.stop()
            publisher = stream.publisher()
        before = dict(seen.batches)
        frame = read_stream(spark, stream.options, source=SOURCES[run % 2], maxRowsPerTrigger=6)
        run_to_end(frame, tmp_path, seen)
        assert {batch: seen.batches[batch] for batch in before} == before, "a repeated batch has the same rows"
        assert seen.numbers == list(range(10 * run + 10))
        last = max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@pytest.mark.full("a dozen queries of Spark")
def test_a_query_is_stopped_at_any_moment_beside_another_query_of_the_same_client(
    spark: SparkSession, stream: Stream, tmp_path: Path, rng: random.Random
) -> None:
    publisher = stream.publisher()
    kept, stopped = CollectingSink(), CollectingSink()
    frame = read_stream(spark, stream.options, source=JVM, maxRowsPerTrigger=7)
    with run_query(frame, tmp_path / "kept", kept) as other:
        for run in range(12):
            publisher.send(numbered(10 * run, 10 * run + 10))
            with run_query(frame, tmp_path / "stopped", stopped) as query:
                time.sleep(rng.uniform(0, 0.6))
            assert query.exception() is None, run
        wait_for_query(other, "all rows", lambda: len(kept.numbers) >= 120)
    run_to_end(frame, tmp_path / "stopped", stopped)
    assert kept.numbers == stopped.numbers == list(range(120))


def test_payload_auto_reads_raw_messages_and_refuses_the_wire_format(spark: SparkSession, node: NodeHandle) -> None:
    for stream in open_stream(node):
        stream.append("framed", pa.array([b"one", b"two"], pa.binary()), 1)
        frame = spark.read.format(JVM).options(**stream.options).load()
        assert "does not read payload=framed yet" in error_of(frame)
        assert read_batch(spark, stream.options, source=JVM).count() == 2


def test_a_query_starts_a_killed_node_again_and_gets_another_client(spark: SparkSession, run_name: str) -> None:
    with own_node(run_name) as handle:
        for stream in open_stream(handle):
            publisher = stream.record().publisher()
            publisher.send(numbered(0, 20))
            assert numbers(read_batch(spark, stream.options, source=JVM)) == list(range(20))
            publisher.stop()
            close_client(handle.aeron_dir)
            os.kill(handle.pid, signal.SIGKILL)
            wait_for(lambda: not is_running(handle.pid), TIMEOUT_S, "the end of the node's process")
            assert numbers(read_batch(spark, stream.options, source=JVM)) == list(range(20))
            assert status(handle.aeron_dir).pid not in (None, handle.pid)
            close_client(handle.aeron_dir)

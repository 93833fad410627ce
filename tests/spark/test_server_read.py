"""Reading through a server: the same options, planning and columns as the direct way."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from aeron_spark.node import NodeHandle
from aeron_spark.streams.stream import Stream
from tests.aeron.streams import number, own_node
from tests.spark.queries import Collected, await_that, finish, read_stream, running
from tests.spark.served import Served, numbered_rows, read, write


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    """One with small segments, so that little is enough to purge some."""
    with own_node(run_name, segment_length="256k") as handle:
        yield handle


@pytest.fixture
def stream(spark: SparkSession, served: Served) -> Stream:
    """600 numbered messages in each of two partitions: even tasks' numbers in the first, odd ones' in the second."""
    made = served.stream(2, term_bytes=1 << 16)
    write(numbered_rows(spark, 1_200, 4, length=200), served.options(made))
    return made


def numbers(rows: list[Row]) -> list[int]:
    return [number(row.value) for row in rows]


def test_raw_rows_say_which_stream_partition_and_position_they_are_of(
    spark: SparkSession, served: Served, stream: Stream
) -> None:
    rows = read(spark, served.options(stream)).collect()
    assert numbers(rows) == [*range(300), *range(600, 900), *range(300, 600), *range(900, 1_200)]
    assert {row.channel for row in rows} == {stream.definition.name}
    assert [row.recordingId for row in rows] == [0] * 600 + [1] * 600
    assert len({(row.recordingId, row.position) for row in rows}) == 1_200
    assert {(row.reservedValue, row.timestamp) for row in rows} == {(0, None)}


def test_framed_values_and_arrow_rows_come_back_with_their_metadata(spark: SparkSession, served: Served) -> None:
    values, rows = served.stream(), served.stream()
    write(numbered_rows(spark, 10, 1), served.options(values), payload="framed", writerId="desk")
    found = read(spark, served.options(values), includeMetadata=True).collect()
    assert numbers(found) == list(range(10))
    assert {(row._aeron_writer, row._aeron_batch, row._aeron_partition) for row in found} == {("desk", -1, 0)}
    assert [row._aeron_row for row in found] == list(range(10))
    assert all(row._aeron_timestamp is not None for row in found)
    write(spark.range(7).selectExpr("id", "id * 0.5 as half").coalesce(1), served.options(rows))
    table = read(spark, served.options(rows), includeMetadata=True)
    assert table.schema["half"].dataType.simpleString() == "decimal(22,1)"
    assert [row.id for row in table.collect()] == list(range(7))
    assert {row._aeron_recordingId for row in table.collect()} == {0}


def test_a_batch_has_its_bounds(spark: SparkSession, served: Served, stream: Stream) -> None:
    options = served.options(stream)
    rows = read(spark, options).collect()
    first, second = ([row.position for row in rows if row.recordingId == partition] for partition in (0, 1))
    name = served.name
    starting = json.dumps({f"{name}/0": first[590], "1": second[10]})
    ending = json.dumps({f"{name}/0": first[595], f"{name}/1": second[12]})
    found = read(spark, options, startingOffsets=starting, endingOffsets=ending).collect()
    assert [(row.recordingId, row.position) for row in found] == [
        *((0, position) for position in first[590:595]),
        *((1, position) for position in second[10:12]),
    ]
    found = read(spark, options, startPosition=first[100], endPosition=first[103]).collect()
    assert [row.position for row in found if row.recordingId == 0] == first[100:103]
    split = read(spark, options, minPartitions=4)
    assert split.rdd.getNumPartitions() >= 4
    assert sorted(numbers(split.collect())) == list(range(1_200))
    for wrong, says in (
        ({"startingOffsets": '{"7": 0}'}, "names recording 7, and the stream has no such recording"),
        ({"startingOffsets": json.dumps({"0": first[1] + 32})}, "is inside a message"),
    ):
        with pytest.raises(PySparkException, match=says):
            read(spark, options, **wrong).collect()


def test_the_servers_index_finds_a_time_whatever_the_payload(spark: SparkSession, served: Served) -> None:
    stream = served.stream()
    moments = []
    for index in range(3):
        time.sleep(0.01)
        moments.append(datetime.now(timezone.utc))
        write(numbered_rows(spark, 10, 1, first=10 * index), served.options(stream))
    for index, moment in enumerate(moments):
        found = read(spark, served.options(stream), startingTimestamp=moment.isoformat()).collect()
        assert numbers(found) == list(range(10 * index, 30))
    assert numbers(read(spark, served.options(stream), startingTimestamp="-1h").collect()) == list(range(30))
    late = read(spark, served.options(stream), startingTimestamp=datetime.now(timezone.utc).isoformat())
    assert late.collect() == []


def test_available_now_keeps_to_the_limits_and_goes_on_where_it_was(
    spark: SparkSession, served: Served, stream: Stream, tmp_path: Path
) -> None:
    seen = Collected()
    frame = read_stream(spark, served.options(stream), maxRowsPerTrigger=500)
    query = finish(frame, tmp_path / "checkpoint", seen)
    assert seen.numbers == list(range(1_200))
    assert len(seen.sizes) == 3
    assert max(seen.sizes) <= 500
    offset = json.loads(query.lastProgress.sources[0].endOffset)
    assert set(offset["recordings"]) == {f"{served.name}/0", f"{served.name}/1"}
    write(numbered_rows(spark, 10, 1, first=5_000), served.options(stream))
    finish(frame, tmp_path / "checkpoint", seen)
    assert seen.numbers == [*range(1_200), *range(5_000, 5_010)]


def test_a_running_query_sees_what_is_committed_and_nothing_before(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    stream = served.stream(2)
    write(numbered_rows(spark, 10, 2), served.options(stream))
    seen = Collected()
    with running(read_stream(spark, served.options(stream)), tmp_path / "checkpoint", seen) as query:
        await_that(query, "the first rows", lambda: len(seen.numbers) == 10)
        write(numbered_rows(spark, 100, 2, first=10), served.options(stream))
        await_that(query, "the rows", lambda: len(seen.numbers) == 110)
    assert seen.sizes == [10, 100]  # each transaction as a whole, of both partitions


def test_what_was_purged_is_a_loss_that_is_told(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    stream = served.stream(term_bytes=1 << 16)
    write(numbered_rows(spark, 3, 1), served.options(stream))
    seen = Collected()
    frame = read_stream(spark, served.options(stream))
    finish(frame, tmp_path / "checkpoint", seen)
    for _ in range(2):  # more than two segments
        write(numbered_rows(spark, 600, 1, first=10, length=1_000), served.options(stream))
    (start,) = stream.purge(before_position=stream.states()[0].end)
    assert start > 0
    with pytest.raises(PySparkException, match="purged"):
        finish(frame, tmp_path / "checkpoint", seen)
    finish(read_stream(spark, served.options(stream), failOnDataLoss=False), tmp_path / "checkpoint", seen)
    left = numbers(read(spark, served.options(stream)).collect())
    assert 0 < len(left) < 1_200
    assert seen.batches[1] == left


def test_filters_become_bounds(spark: SparkSession, served: Served, stream: Stream) -> None:
    options = served.options(stream)
    rows = read(spark, options).collect()
    low = rows[500].position
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        found = read(spark, options, pushdown=True).where(f"position >= {low}").collect()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert found == [row for row in rows if row.position >= low]

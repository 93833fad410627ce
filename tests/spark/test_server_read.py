"""Reading through a server: the same options, planning and columns as the direct way."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import GreaterThanOrEqual

from aeron_spark.errors import DataLossError, OptionError
from aeron_spark.log.query import DataLossWarning
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import wait_for
from tests.aeron.streams import number
from tests.spark.queries import CollectingSink, read_stream, run_query, run_to_end, wait_for_query
from tests.spark.simulated_engine import Query, make_numbered_batch, make_source, read_numbers, read_table, save
from tests.spark.stream_server import StreamServer, commit_values, make_numbered_rows, read_frame, write_frame

pytestmark = pytest.mark.usefixtures("server_route_warmed_up")


def filled(server: StreamServer) -> Stream:
    """Make a stream of 600 numbered messages in each of two partitions."""
    made = server.create_stream(2, term_bytes=1 << 16)
    for first in (0, 300, 600, 900):
        commit_values(made, first, first + 300, partition=first // 300 % 2, length=200)
    return made


@pytest.fixture(scope="module")
def stream(server: StreamServer) -> Stream:
    """One that no test changes."""
    return filled(server)


def numbers_of(rows: list[Row]) -> list[int]:
    return [number(row.value) for row in rows]


def test_raw_rows_say_which_stream_partition_and_position_they_are_of(
    spark: SparkSession, server: StreamServer, stream: Stream
) -> None:
    rows = read_frame(spark, server.options(stream)).collect()
    assert numbers_of(rows) == [*range(300), *range(600, 900), *range(300, 600), *range(900, 1_200)]
    assert {row.channel for row in rows} == {stream.definition.name}
    assert [row.recordingId for row in rows] == [0] * 600 + [1] * 600
    assert len({(row.recordingId, row.position) for row in rows}) == 1_200
    assert {(row.reservedValue, row.timestamp) for row in rows} == {(0, None)}


def test_framed_values_and_arrow_rows_come_back_with_their_metadata(spark: SparkSession, server: StreamServer) -> None:
    values, rows = server.create_stream(), server.create_stream()
    write_frame(make_numbered_rows(spark, 10, 1), server.options(values), payload="framed", writerId="desk")
    found = read_frame(spark, server.options(values), includeMetadata=True).collect()
    assert numbers_of(found) == list(range(10))
    assert {(row._aeron_writer, row._aeron_batch, row._aeron_partition) for row in found} == {("desk", -1, 0)}
    assert [row._aeron_row for row in found] == list(range(10))
    assert all(row._aeron_timestamp is not None for row in found)
    write_frame(spark.range(7).selectExpr("id", "id * 0.5 as half").coalesce(1), server.options(rows))
    table = read_frame(spark, server.options(rows), includeMetadata=True)
    assert table.schema["half"].dataType.simpleString() == "decimal(22,1)"
    assert [row.id for row in table.collect()] == list(range(7))
    assert {row._aeron_recordingId for row in table.collect()} == {0}


def places(options: dict[str, str], **more: object) -> list[tuple[int, int]]:
    """Return recording and position of each message that a batch query reads."""
    found = read_table(options, **more)
    return list(zip(found["recordingId"].to_pylist(), found["position"].to_pylist(), strict=True))


def test_a_batch_has_its_bounds(server: StreamServer, stream: Stream) -> None:
    options, name = server.options(stream), server.name
    first, second = ([at for partition, at in places(options) if partition == wanted] for wanted in (0, 1))
    starting = json.dumps({f"{name}/0": first[590], "1": second[10]})
    ending = json.dumps({f"{name}/0": first[595], f"{name}/1": second[12]})
    assert places(options, startingOffsets=starting, endingOffsets=ending) == [
        *((0, position) for position in first[590:595]),
        *((1, position) for position in second[10:12]),
    ]
    found = places(options, startPosition=first[100], endPosition=first[103])
    assert [position for partition, position in found if partition == 0] == first[100:103]
    source = make_source(options, minPartitions=4)
    assert len(source.reader(source.schema()).partitions()) >= 4
    assert sorted(read_numbers(options, minPartitions=4)) == list(range(1_200))
    for wrong, says in (
        ('{"7": 0}', "has recording 7, which the stream does not have"),
        (json.dumps({"0": first[1] + 32}), "is inside a message"),
    ):
        with pytest.raises(OptionError, match=says):
            read_table(options, startingOffsets=wrong)


def test_the_servers_index_finds_a_time_whatever_the_payload(server: StreamServer) -> None:
    stream = server.create_stream()
    options, moments = server.options(stream), []

    def now() -> datetime:
        """The time, once it has gone on: no two are equal, and none is that of a commit."""
        before = datetime.now(timezone.utc)
        wait_for(lambda: datetime.now(timezone.utc) > before, 60.0, "the clock to go on")
        return datetime.now(timezone.utc)

    for index in range(3):
        moments.append(now())
        commit_values(stream, 10 * index, 10 * index + 10)
        now()
    for index, moment in enumerate(moments):
        assert read_numbers(options, startingTimestamp=moment.isoformat()) == list(range(10 * index, 30))
    assert read_numbers(options, startingTimestamp="-1h") == list(range(30))
    assert read_numbers(options, startingTimestamp=now().isoformat()) == []


@pytest.mark.full("two queries through Spark take more than 10 CPU seconds; the limits are shown by hand")
def test_available_now_keeps_to_the_limits_and_a_running_query_goes_on_where_it_was(
    spark: SparkSession, server: StreamServer, tmp_path: Path
) -> None:
    stream, seen = filled(server), CollectingSink()
    options = server.options(stream)
    query = run_to_end(read_stream(spark, options, maxRowsPerTrigger=500), tmp_path / "checkpoint", seen)
    assert seen.numbers == list(range(1_200))
    assert len(seen.sizes) == 3
    assert max(seen.sizes) <= 500
    offset = json.loads(query.lastProgress.sources[0].endOffset)
    assert set(offset["recordings"]) == {f"{server.name}/0", f"{server.name}/1"}
    with run_query(read_stream(spark, options), tmp_path / "checkpoint", seen) as query:
        save(options, [make_numbered_batch(5_000, 5_050)], [make_numbered_batch(5_050, 5_100)])
        wait_for_query(query, "the rows", lambda: len(seen.numbers) == 1_300)
    assert seen.numbers == [*range(1_200), *range(5_000, 5_100)]
    assert seen.sizes[3:] == [100]  # a transaction as a whole, of both partitions


def test_what_was_purged_is_a_loss_that_is_told(server: StreamServer) -> None:
    stream = server.create_stream(term_bytes=1 << 16)
    commit_values(stream, 0, 3)
    query = Query(server.options(stream))
    assert list(query.run_batches()) == [[0, 1, 2]]
    for first in (10, 610):  # more than two segments
        commit_values(stream, first, first + 600, length=1_000)
    (start,) = stream.purge(before_position=stream.states()[0].end)
    assert start > 0
    with pytest.raises(DataLossError, match="purged"):
        query.run_batch()
    query.restart(failOnDataLoss=False)
    with pytest.warns(DataLossWarning, match="purged"):
        found = query.run_batch()
    left = read_numbers(server.options(stream))
    assert 0 < len(left) < 1_200
    assert found == left


@pytest.mark.full("three queries; the one before does it by hand, and test_source_losses has one of Spark")
def test_spark_tells_what_was_purged(spark: SparkSession, server: StreamServer, tmp_path: Path) -> None:
    stream = server.create_stream(term_bytes=1 << 16)
    write_frame(make_numbered_rows(spark, 3, 1), server.options(stream))
    seen = CollectingSink()
    frame = read_stream(spark, server.options(stream))
    run_to_end(frame, tmp_path / "checkpoint", seen)
    for _ in range(2):  # more than two segments
        write_frame(make_numbered_rows(spark, 600, 1, first=10, length=1_000), server.options(stream))
    (start,) = stream.purge(before_position=stream.states()[0].end)
    assert start > 0
    with pytest.raises(PySparkException, match="purged"):
        run_to_end(frame, tmp_path / "checkpoint", seen)
    run_to_end(read_stream(spark, server.options(stream), failOnDataLoss=False), tmp_path / "checkpoint", seen)
    left = numbers_of(read_frame(spark, server.options(stream)).collect())
    assert 0 < len(left) < 1_200
    assert seen.batches[1] == left


def test_filters_become_bounds(server: StreamServer, stream: Stream) -> None:
    options = server.options(stream)
    everything = places(options)
    low = everything[500][1]
    source = make_source(options, pushdown=True)
    reader: Any = source.reader(source.schema())
    wanted = [GreaterThanOrEqual(("position",), low)]
    assert list(reader.pushFilters(wanted)) == wanted, "Spark must still apply the filter"
    partitions = reader.partitions()
    found = [at for one in partitions for batch in reader.read(one) for at in batch.column("position").to_pylist()]
    assert sorted(found) == sorted(position for _, position in everything if position >= low)


@pytest.mark.full("two reads of Spark; the one before does it by hand, and test_source_bounds has one of Spark")
def test_filters_of_spark_become_bounds(spark: SparkSession, server: StreamServer, stream: Stream) -> None:
    options = server.options(stream)
    rows = read_frame(spark, options).collect()
    low = rows[500].position
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        found = read_frame(spark, options, pushdown=True).where(f"position >= {low}").collect()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert found == [row for row in rows if row.position >= low]

"""Reading on the server route: the same options, plans and columns as on the direct route."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import GreaterThanOrEqual

from aeron_spark.errors import DataLossError, OptionError
from aeron_spark.log.query import DataLossWarning
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import wait_for
from tests.aeron.streams import number
from tests.spark.queries import CollectingSink, read_stream, run_query, run_to_end, wait_for_query
from tests.spark.simulated_engine import Query, make_numbered_batch, make_source, read_numbers, read_table, save
from tests.spark.stream_server import StreamServer, commit_values, read_frame

pytestmark = pytest.mark.usefixtures("server_route_warmed_up")


def create_filled_stream(server: StreamServer) -> Stream:
    """Create a stream of two partitions with 600 numbered messages each."""
    stream = server.create_stream(2, segment_bytes=1 << 16)
    for first in (0, 300, 600, 900):
        commit_values(stream, first, first + 300, partition=first // 300 % 2, length=200)
    return stream


@pytest.fixture(scope="module")
def stream(server: StreamServer) -> Stream:
    """A stream that no test changes."""
    return create_filled_stream(server)


def numbers_of(rows: list[Row]) -> list[int]:
    return [number(row.value) for row in rows]


def test_raw_rows_have_columns_for_stream_partition_and_position(
    spark: SparkSession, server: StreamServer, stream: Stream
) -> None:
    rows = read_frame(spark, server.options(stream)).collect()
    assert numbers_of(rows) == [*range(300), *range(600, 900), *range(300, 600), *range(900, 1_200)]
    assert {row.channel for row in rows} == {stream.definition.name}
    assert [row.recordingId for row in rows] == [0] * 600 + [1] * 600
    assert len({(row.recordingId, row.position) for row in rows}) == 1_200
    assert {(row.reservedValue, row.timestamp) for row in rows} == {(0, None)}


def test_framed_values_and_arrow_rows_are_read_with_their_metadata(server: StreamServer) -> None:
    framed, arrow = (server.options(server.create_stream()) for _ in range(2))
    save(framed, [make_numbered_batch(0, 10)], payload="framed", writerId="desk")
    found = read_table(framed, payload="auto", includeMetadata=True).to_pylist()
    assert [number(row["value"]) for row in found] == list(range(10))
    assert {(row["_aeron_writer"], row["_aeron_batch"], row["_aeron_partition"]) for row in found} == {("desk", -1, 0)}
    assert [row["_aeron_row"] for row in found] == list(range(10))
    assert all(row["_aeron_timestamp"] is not None for row in found)
    halves = pa.array([Decimal(number) / 2 for number in range(7)], pa.decimal128(22, 1))
    save(arrow, [pa.record_batch({"id": pa.array(range(7), pa.int64()), "half": halves})])
    rows = read_table(arrow, payload="auto", includeMetadata=True)
    assert rows.schema.field("half").type == pa.decimal128(22, 1)
    assert rows["id"].to_pylist() == list(range(7))
    assert set(rows["_aeron_recordingId"].to_pylist()) == {0}


def read_positions(options: dict[str, str], **more: object) -> list[tuple[int, int]]:
    """Return the partition and the position of each message that a batch query reads."""
    table = read_table(options, **more)
    return list(zip(table["recordingId"].to_pylist(), table["position"].to_pylist(), strict=True))


def test_a_batch_query_reads_between_its_bounds(server: StreamServer, stream: Stream) -> None:
    options, name = server.options(stream), server.name
    first, second = ([at for partition, at in read_positions(options) if partition == wanted] for wanted in (0, 1))
    starting = json.dumps({f"{name}/0": first[590], "1": second[10]})
    ending = json.dumps({f"{name}/0": first[595], f"{name}/1": second[12]})
    assert read_positions(options, startingOffsets=starting, endingOffsets=ending) == [
        *((0, position) for position in first[590:595]),
        *((1, position) for position in second[10:12]),
    ]
    found = read_positions(options, startPosition=first[100], endPosition=first[103])
    assert [position for partition, position in found if partition == 0] == first[100:103]
    source = make_source(options, minPartitions=4)
    assert len(source.reader(source.schema()).partitions()) >= 4
    assert sorted(read_numbers(options, minPartitions=4)) == list(range(1_200))
    for wrong, text in (
        ('{"7": 0}', "has recording 7, which the stream does not have"),
        (json.dumps({"0": first[1] + 32}), "is inside a message"),
    ):
        with pytest.raises(OptionError, match=text):
            read_table(options, startingOffsets=wrong)


def test_the_servers_index_finds_a_starting_time(server: StreamServer) -> None:
    stream = server.create_stream()
    options, moments = server.options(stream), []

    def next_time() -> datetime:
        """Wait until the clock advances and return the time, which differs from that of every commit."""
        before = datetime.now(timezone.utc)
        wait_for(lambda: datetime.now(timezone.utc) > before, 60.0, "the clock to advance")
        return datetime.now(timezone.utc)

    for index in range(3):
        moments.append(next_time())
        commit_values(stream, 10 * index, 10 * index + 10)
        next_time()
    for index, moment in enumerate(moments):
        assert read_numbers(options, startingTimestamp=moment.isoformat()) == list(range(10 * index, 30))
    assert read_numbers(options, startingTimestamp="-1h") == list(range(30))
    assert read_numbers(options, startingTimestamp=next_time().isoformat()) == []


@pytest.mark.full(
    "two queries of Spark take more than 10 CPU seconds; test_source_limits shows the limits without Spark"
)
def test_available_now_obeys_the_limits_and_a_restarted_query_continues_at_its_position(
    spark: SparkSession, server: StreamServer, tmp_path: Path
) -> None:
    stream, sink = create_filled_stream(server), CollectingSink()
    options = server.options(stream)
    query = run_to_end(read_stream(spark, options, maxRowsPerTrigger=500), tmp_path / "checkpoint", sink)
    assert sink.numbers == list(range(1_200))
    assert len(sink.sizes) == 3
    assert max(sink.sizes) <= 500
    offset = json.loads(query.lastProgress.sources[0].endOffset)
    assert set(offset["recordings"]) == {f"{server.name}/0", f"{server.name}/1"}
    with run_query(read_stream(spark, options), tmp_path / "checkpoint", sink) as query:
        save(options, [make_numbered_batch(5_000, 5_050)], [make_numbered_batch(5_050, 5_100)])
        wait_for_query(query, "the rows", lambda: len(sink.numbers) == 1_300)
    assert sink.numbers == [*range(1_200), *range(5_000, 5_100)]
    assert sink.sizes[3:] == [100]  # one transaction of both partitions


def test_a_query_fails_with_data_loss_if_its_next_rows_were_purged(server: StreamServer) -> None:
    stream = server.create_stream(segment_bytes=1 << 16)
    commit_values(stream, 0, 3)
    query = Query(server.options(stream))
    assert list(query.run_batches()) == [[0, 1, 2]]
    commit_values(stream, 10, 610, length=1_000)  # more than one segment
    second = stream.states()[0].end
    commit_values(stream, 610, 1_210, length=1_000)
    (purged,) = stream.purge(before_position=second)
    assert purged.start == second
    with pytest.raises(DataLossError, match="purged"):
        query.run_batch()
    query.restart(failOnDataLoss=False)
    with pytest.warns(DataLossWarning, match="purged"):
        found = query.run_batch()
    kept = read_numbers(server.options(stream))
    assert found == kept == list(range(610, 1_210))


def test_a_query_and_a_reader_continue_when_their_partition_has_a_new_recording(server: StreamServer) -> None:
    stream = server.create_stream(segment_bytes=1 << 16)
    commit_values(stream, 0, 3)
    query = Query(server.options(stream))
    assert list(query.run_batches()) == [[0, 1, 2]]
    for first in (3, 6):
        before = stream.states()[0]
        (purged,) = stream.purge(before_position=before.end)
        after = stream.states()[0]
        assert purged.start == after.start == after.recording.start == before.end
        assert (after.shape.recording_id != before.shape.recording_id, after.recording.identity) == (
            True,
            before.recording.identity,
        )
        commit_values(stream, first, first + 3)
        assert list(query.run_batches()) == [list(range(first, first + 3))]
        query.restart()  # from its checkpoint
        assert list(query.run_batches()) == []
    assert read_numbers(server.options(stream)) == [6, 7, 8]


def test_the_source_turns_filters_into_bounds(server: StreamServer, stream: Stream) -> None:
    options = server.options(stream)
    positions = read_positions(options)
    low = positions[500][1]
    source = make_source(options, pushdown=True)
    reader: Any = source.reader(source.schema())
    filters = [GreaterThanOrEqual(("position",), low)]
    assert list(reader.pushFilters(filters)) == filters, "Spark must still apply the filter"
    partitions = reader.partitions()
    found = [at for one in partitions for batch in reader.read(one) for at in batch.column("position").to_pylist()]
    assert sorted(found) == sorted(position for _, position in positions if position >= low)

"""One query reads several streams: a list of stream ids, or names and patterns of a server's streams."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from aeron_spark.errors import DataFormatError, DataLossError, OptionError
from aeron_spark.node import NodeHandle
from aeron_spark.streams.stream import Stream as ServerStream
from tests.aeron.streams import Stream, numbered
from tests.spark.queries import CollectingSink, read_batch, read_stream, run_query, run_to_end, wait_for_query
from tests.spark.simulated_engine import Query, make_source, read_numbers, read_table
from tests.spark.stream_server import StreamServer, commit_values, write_frame
from tests.stream_requests import create_request


class Pair:
    """Two recorded streams of one channel, and the options that read both."""

    def __init__(self, node: NodeHandle) -> None:
        self.streams = [Stream(node).record(), Stream(node).record()]
        one, two = self.streams
        self.options = {**one.options, "streamId": f"{one.id},{two.id}"}

    def send(self, index: int, first: int, last: int) -> None:
        self.streams[index].publisher().send(numbered(first, last))


@pytest.fixture
def pair(node: NodeHandle) -> Iterator[Pair]:
    found = Pair(node)
    yield found
    for stream in found.streams:
        stream.close()


def create_named(server: StreamServer, prefix: str, name: str, partitions: int = 1) -> ServerStream:
    return server.endpoint.streams.create(create_request(f"{prefix}.{name}", partitions))


def test_a_batch_of_two_streams_has_the_rows_of_both_with_their_stream(pair: Pair) -> None:
    pair.send(0, 0, 3)
    pair.send(1, 3, 5)
    found = read_table(pair.options)
    one, two = (stream.id for stream in pair.streams)
    assert found["streamId"].to_pylist() == [one] * 3 + [two] * 2
    assert found.schema.names.count("streamId") == 1
    start = json.dumps({f"{one}/{pair.streams[0].open[0].recording_id}": 160})
    assert read_numbers(pair.options, startingOffsets=start) == [1, 2, 3, 4]


def test_a_query_of_two_streams_reads_each_row_once_over_restarts_and_limits(pair: Pair) -> None:
    pair.send(0, 0, 20)
    pair.send(1, 20, 40)
    query = Query(pair.options, maxBytesPerTrigger="800")
    batches = query.run_available_now()
    assert all(0 < len(batch) <= 5 for batch in batches)
    pair.send(1, 40, 45)  # a further recording of the second stream
    query.restart()
    assert query.plan_batch()
    first = query.read_planned_batch()
    query.restart()  # the batch failed
    assert query.read_planned_batch() == first
    query.commit()
    rest = [number for batch in query.run_batches() for number in batch]
    assert sorted([*(number for batch in batches for number in batch), *first, *rest]) == list(range(45))


def test_a_checkpoint_of_one_stream_is_not_one_of_two(pair: Pair) -> None:
    pair.send(0, 0, 1)
    query = Query(pair.streams[0].options)
    assert query.run_batch() == [0]
    assert set(query.last_offset["recordings"]) == {pair.streams[0].open[0].key}
    query.options = pair.options
    query.restart()
    with pytest.raises(OptionError, match="the checkpoint is of stream"):
        query.run_batch()


def test_a_purged_part_of_one_stream_is_a_data_loss(pair: Pair) -> None:
    pair.send(0, 0, 10)
    pair.send(1, 10, 20)
    query = Query(pair.options, maxRowsPerTrigger=2)
    query.run_batch()
    lost = pair.streams[1].open[0]
    lost.stop()
    pair.streams[1].archive.java.purgeRecording(lost.recording_id)
    query.restart()
    with pytest.raises(DataLossError, match=f"archive embedded/{pair.streams[1].id} was deleted"):
        query.run_batch()


def test_rows_of_the_wire_format_get_the_column_of_their_stream(node: NodeHandle) -> None:
    one, two = Stream(node), Stream(node)
    for index, stream in enumerate((one, two)):
        stream.append("arrow", pa.record_batch({"symbol": ["a", "b"], "price": [index, index]}), 1_000)
    options = {**one.options, "streamId": f"{one.id},{two.id}", "payload": "auto"}
    found = read_table(options, includeMetadata=True)
    assert found.schema.names[:3] == ["symbol", "price", "streamId"]
    assert found.select(["price", "streamId"]).to_pylist() == [
        {"price": index, "streamId": stream.id} for index, stream in enumerate((one, two)) for _ in range(2)
    ]
    three = Stream(node)
    three.append("arrow", pa.record_batch({"streamId": [1]}), 1_000)
    with pytest.raises(DataFormatError, match="one query has one payload and one schema"):
        make_source({**options, "streamId": f"{one.id},{three.id}"}).schema()
    with pytest.raises(OptionError, match="have a column 'streamId'"):
        make_source({**options, "streamId": f"{three.id},{three.id + 50_000}"}).schema()


def test_a_pattern_reads_the_streams_that_match_and_those_that_match_later(
    spark: SparkSession, server: StreamServer, server_route_warmed_up: None, tmp_path: Path
) -> None:
    prefix = f"prices{secrets.token_hex(3)}"
    commit_values(create_named(server, prefix, "eu", 2), 0, 10)
    commit_values(create_named(server, f"x{prefix}", "eu"), 900, 910)  # does not match
    frame = read_stream(spark, server.options(f"{prefix}.*"))
    assert frame.columns[-1] == "stream"
    sink = CollectingSink()
    with run_query(frame, tmp_path / "checkpoint", sink) as query:
        wait_for_query(query, "the first stream", lambda: len(sink.numbers) == 10)
        commit_values(create_named(server, prefix, "us"), 10, 20)
        wait_for_query(query, "the stream that joined", lambda: len(sink.numbers) == 20)
    commit_values(create_named(server, prefix, "asia"), 20, 25)
    query = run_to_end(frame, tmp_path / "checkpoint", sink)
    assert sink.numbers == list(range(25))
    progress = query.lastProgress
    assert progress is not None
    assert json.loads(progress.sources[0].endOffset)["stream"]["streams"][0]["name"] == f"{prefix}.asia"
    rows = read_batch(spark, server.options(f"{prefix}.us, {prefix}.asia")).groupBy("stream").count().collect()
    assert {row.stream: row["count"] for row in rows} == {f"{prefix}.us": 10, f"{prefix}.asia": 5}


def test_streams_of_a_server_with_two_schemas_are_refused_with_both(spark: SparkSession, server: StreamServer) -> None:
    prefix = f"orders{secrets.token_hex(3)}"
    one, two = (create_named(server, prefix, name) for name in ("eu", "us"))
    write_frame(spark.range(2).selectExpr("id AS price"), server.options(one))
    write_frame(spark.range(2).selectExpr("CAST(id AS STRING) AS price"), server.options(two))
    with pytest.raises(Exception, match=r"price int64.*price string"):
        read_batch(spark, server.options(f"{prefix}.*"), payload="auto")


def test_a_pattern_without_a_stream_is_refused_in_a_batch(server: StreamServer) -> None:
    source = make_source(server.options("no-such-stream.*"))
    with pytest.raises(OptionError, match="no stream of the server matches"):
        source.reader(source.schema()).partitions()

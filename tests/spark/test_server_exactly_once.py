"""Queries of Spark that copy a stream to another one on the server route, exactly once.

``test_server_sink`` shows the same with the simulated engine, so the tests here that need no Spark are marked ``full``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from aeron_spark.errors import RefusedError
from aeron_spark.jobs.session import begin
from aeron_spark.streams.stream import Stream
from aeron_spark.wire.stream_requests import Transaction
from tests.aeron.streams import number
from tests.spark.queries import QUERY_TIMEOUT_S, read_stream
from tests.spark.simulated_engine import read_numbers, read_table
from tests.spark.stream_server import (
    FailingCommit,
    StreamServer,
    commit_values,
    format_server_list,
    make_numbered_rows,
    read_frame,
    write_frame,
)
from tests.stream_requests import create_request
from tests.waiting import poll_until

pytestmark = pytest.mark.usefixtures("server_route_warmed_up")


def start(frame: DataFrame, options: dict[str, str], checkpoint: Path) -> StreamingQuery:
    """Start a query that writes the rows of a streaming DataFrame that are available now."""
    writer = frame.writeStream.format("aeron").options(**options).option("checkpointLocation", str(checkpoint))
    return begin(writer.trigger(availableNow=True).start)


def copy_available(frame: DataFrame, options: dict[str, str], checkpoint: Path) -> StreamingQuery:
    """Write the rows that are available now; raise the error with which the query failed."""
    query = start(frame, options, checkpoint)
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), f"still running after {QUERY_TIMEOUT_S} s: {query.status}"
    finally:
        query.stop()
    return query


def committed_numbers(server: StreamServer, stream: Stream) -> list[int]:
    return read_numbers(server.options(stream))


def remove_last_commit(checkpoint: Path) -> int:
    """Remove the commit of the last batch from a checkpoint, as if Spark had died before it; return its number."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last


@pytest.fixture
def source(server: StreamServer) -> Stream:
    stream = server.create_stream(2)
    commit_values(stream, 0, 100)
    commit_values(stream, 100, 200, partition=1)
    return stream


@pytest.fixture
def target(server: StreamServer) -> Stream:
    return server.create_stream(2)


def stream_rows(spark: SparkSession, server: StreamServer, source: Stream, **more: object) -> DataFrame:
    return read_stream(spark, server.options(source), **more).select("value")


@pytest.mark.full("two queries through Spark; test_server_sink shows the same without Spark")
def test_a_copy_equals_its_source_after_a_failed_commit_and_a_restart(
    spark: SparkSession,
    server: StreamServer,
    source: Stream,
    target: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server has committed the batch and Spark does not know it: the next run of the query repeats the batch."""
    monkeypatch.setattr(target, "commit", FailingCommit(target.commit, after_commit=True))
    frame, options = stream_rows(spark, server, source, maxRowsPerTrigger=150), server.options(target)
    first = start(frame, options, tmp_path / "c")
    with pytest.raises(PySparkException, match="the commit failed, for a test"):
        first.awaitTermination(QUERY_TIMEOUT_S)
    first.stop()
    assert len(committed_numbers(server, target)) == 150
    commit_values(source, 200, 300)
    query = copy_available(frame, options, tmp_path / "c")
    assert query.id == first.id
    assert target.last_committed(query.id).transaction == 1
    for partition in (0, 1):
        same, wanted = (
            [
                number(row["value"])
                for row in read_table(server.options(one)).to_pylist()
                if row["recordingId"] == partition
            ]
            for one in (target, source)
        )
        assert same == wanted
    with pytest.raises(RefusedError, match=f"fenced: the later run '{query.runId}'"):
        target.begin(Transaction(query.id, first.runId, 2))


@pytest.mark.full("two queries a case through Spark; test_server_sink shows the same without Spark")
@pytest.mark.parametrize("partitions", [2, 3], ids=["in the same partitions", "in other partitions"])
def test_a_batch_that_spark_repeats_because_it_lost_its_commit_adds_no_rows(
    spark: SparkSession, server: StreamServer, source: Stream, target: Stream, tmp_path: Path, partitions: int
) -> None:
    frame = stream_rows(spark, server, source)
    copy_available(frame, server.options(target), tmp_path / "c")
    before = target.states()
    assert remove_last_commit(tmp_path / "c") == 0
    again = frame if partitions == 2 else frame.repartition(partitions)
    copy_available(again, server.options(target), tmp_path / "c")
    assert target.states() == before
    assert sorted(committed_numbers(server, target)) == list(range(200))


def test_a_query_aggregates_arrow_rows_and_writes_the_result_to_another_stream(
    spark: SparkSession, server: StreamServer, tmp_path: Path
) -> None:
    source, target = server.create_stream(2), server.create_stream()
    write_frame(spark.range(0, 1_000, 1, 4).selectExpr("id % 3 as plane", "id"), server.options(source))
    flights = spark.readStream.format("aeron").options(**server.options(source), startingOffsets="earliest").load()
    counted = flights.groupBy("plane").count()
    writer = counted.writeStream.format("aeron").outputMode("complete").options(**server.options(target))
    running = begin(writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start)
    assert running.awaitTermination(QUERY_TIMEOUT_S)
    running.stop()
    found = read_frame(spark, server.options(target)).collect()
    assert sorted((row.plane, row["count"]) for row in found) == [(0, 334), (1, 333), (2, 333)]


@pytest.mark.full("two queries of ten batches; test_server_sink adds a server without Spark")
def test_running_queries_read_and_write_a_server_that_is_added(
    spark: SparkSession, server: StreamServer, second_server: StreamServer, tmp_path: Path
) -> None:
    for one in (server, second_server):
        one.endpoint.streams.create(create_request("grows", 2))
    file = tmp_path / "servers"
    file.write_text(format_server_list(server))
    options = server.options("grows", server=f"@{file}")
    del options["serverKey"]
    write_frame(make_numbered_rows(spark, 100, 2), server.options("grows"))
    write_frame(make_numbered_rows(spark, 100, 2, first=100), second_server.options("grows"))
    frame = read_stream(spark, options, payload="raw", maxRowsPerTrigger=30).select("value")
    seen: set[int] = set()

    def collect(rows: DataFrame, _: int) -> None:
        found = [number(row.value) for row in rows.collect()]
        assert not seen & set(found)
        seen.update(found)

    query = begin(frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "c")).start)
    try:
        poll_until(lambda: len(seen) == 100 or not query.isActive, 60.0, "the first server's rows")
        assert query.isActive
        assert seen == set(range(100))
        # As editors do, replace the file, so that it is complete at every moment.
        (tmp_path / "servers.new").write_text("# two servers\n" + format_server_list(server, second_server))
        (tmp_path / "servers.new").rename(file)
        poll_until(lambda: len(seen) == 200 or not query.isActive, 60.0, "the second server's rows")
        assert query.isActive
        assert seen == set(range(200))
    finally:
        query.stop()
    streams = [one.endpoint.streams.create(create_request("spread-by-file", 2)) for one in (server, second_server)]
    target = {**options, "stream": "spread-by-file"}
    copied = copy_available(frame, target, tmp_path / "d")
    last = sorted(stream.last_committed(str(copied.id)).transaction for stream in streams)
    assert last[1] - last[0] == 1
    assert sorted(number(row.value) for row in read_frame(spark, target, payload="raw").collect()) == list(range(200))

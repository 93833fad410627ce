"""Queries of Spark that copy a stream to another one on the server route, exactly once.

``test_server_sink`` shows the same with the simulated engine, so the tests here that need no Spark are marked ``full``.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from aeron_spark.errors import RefusedError
from aeron_spark.streams.stream import Stream
from aeron_spark.wire.stream_requests import Transaction
from spark_jobs.session import begin
from tests.aeron.streams import number
from tests.spark.queries import QUERY_TIMEOUT_S, read_stream, wait_for_query
from tests.spark.simulated_engine import read_numbers, read_table
from tests.spark.stream_server import FailingCommit, StreamServer, commit_values, read_frame, write_frame

pytestmark = pytest.mark.usefixtures("server_route_warmed_up")


def start(frame: DataFrame, options: dict[str, str], checkpoint: Path, **more: Any) -> StreamingQuery:
    """Start a query that writes a streaming DataFrame; ``trigger`` in ``more`` is Spark's, the rest are options."""
    trigger = more.pop("trigger", {"availableNow": True})
    writer = frame.writeStream.format("aeron").options(**options, **more).option("checkpointLocation", str(checkpoint))
    return begin(writer.trigger(**trigger).start)


def copy_available(frame: DataFrame, options: dict[str, str], checkpoint: Path, **more: Any) -> StreamingQuery:
    """Write the rows that are available now; raise the error with which the query failed."""
    query = start(frame, options, checkpoint, **more)
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


@pytest.mark.full("two queries and four reads through Spark; test_server_sink shows the same without Spark")
def test_a_copy_equals_its_source_in_each_partition_after_a_restart(
    spark: SparkSession, server: StreamServer, source: Stream, target: Stream, tmp_path: Path
) -> None:
    frame = stream_rows(spark, server, source, maxRowsPerTrigger=60)
    query = copy_available(frame, server.options(target), tmp_path / "c")
    commit_values(source, 200, 300)
    copy_available(frame, server.options(target), tmp_path / "c")
    for partition in (0, 1):
        first, second = (
            [
                number(row.value)
                for row in read_frame(spark, server.options(one)).collect()
                if row.recordingId == partition
            ]
            for one in (source, target)
        )
        assert first == second
    assert target.last_committed(str(query.id)).transaction == int(
        max(path.name for path in (tmp_path / "c" / "commits").glob("[0-9]*"))
    )


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


@pytest.mark.full("two queries a case through Spark; test_server_sink shows the same without Spark")
@pytest.mark.parametrize("after_commit", [False, True], ids=["before the commit", "after the commit"])
def test_a_query_fails_with_its_commit_and_its_rows_are_written_once(
    spark: SparkSession, server: StreamServer, source: Stream, target: Stream, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, after_commit: bool,
) -> None:  # fmt: skip
    failing = FailingCommit(target.commit, after_commit=after_commit)
    monkeypatch.setattr(target, "commit", failing)
    with pytest.raises(PySparkException, match="the commit failed, for a test"):
        copy_available(stream_rows(spark, server, source), server.options(target), tmp_path / "c")
    assert failing.has_failed
    assert len(committed_numbers(server, target)) == (
        200 if after_commit else 0
    )  # an abort after the commit has no effect
    copy_available(stream_rows(spark, server, source), server.options(target), tmp_path / "c")
    assert sorted(committed_numbers(server, target)) == list(range(200))


@pytest.mark.full("a query through Spark; test_server_sink shows the same without Spark")
def test_a_micro_batch_without_rows_is_a_transaction(
    spark: SparkSession, server: StreamServer, source: Stream, target: Stream, tmp_path: Path
) -> None:
    frame = stream_rows(spark, server, source).where("value is null")
    copy_available(frame, server.options(target), tmp_path / "c", writerId="empty")
    assert target.last_committed("empty").transaction == 0
    assert [state.end for state in target.states()] == [0, 0]


@pytest.mark.full("two queries through Spark; test_server_sink shows the same without Spark")
def test_a_later_run_fences_the_earlier_run_of_a_query(
    spark: SparkSession, server: StreamServer, source: Stream, target: Stream, tmp_path: Path
) -> None:
    options, frame = server.options(target), stream_rows(spark, server, source)
    older = start(frame, options, tmp_path / "c", trigger={"processingTime": "0 seconds"}, writerId="w")
    try:
        wait_for_query(older, "its first batch", lambda: target.last_committed("w").transaction == 0)
        # As a query on another cluster that has a copy of the checkpoint.
        target.begin(Transaction("w", "the later run", 1))
        commit_values(source, 200, 250)
        with pytest.raises(PySparkException, match="the later run"):
            older.awaitTermination(QUERY_TIMEOUT_S)
    finally:
        older.stop()
    assert len(committed_numbers(server, target)) == 200
    copy_available(frame, options, tmp_path / "c", writerId="w")
    assert sorted(committed_numbers(server, target)) == list(range(250))
    with pytest.raises(RefusedError, match="fenced"):
        target.begin(Transaction("w", "the later run", 2))


@pytest.mark.full("four queries through Spark; test_server_sink shows the same without Spark")
def test_a_micro_batch_of_another_query_with_the_same_number_is_refused_and_one_after_a_restart_is_a_repeat(
    spark: SparkSession, server: StreamServer, source: Stream, target: Stream, tmp_path: Path
) -> None:
    """Writer id and batch number are equal, so the server tells the queries apart by their query ids."""
    frame, options = stream_rows(spark, server, source), server.options(target)
    first = copy_available(frame, options, tmp_path / "one", writerId="shared")
    assert target.last_committed("shared").transaction == 0
    with pytest.raises(PySparkException, match=rf"'shared' is committed by another producer's run '{first.runId}'"):
        copy_available(frame.where("value like '1%'"), options, tmp_path / "two", writerId="shared")
    with pytest.raises(PySparkException, match="another producer's run"):
        copy_available(frame.where("value is null"), options, tmp_path / "three", writerId="shared")
    assert remove_last_commit(tmp_path / "one") == 0
    copy_available(frame, options, tmp_path / "one", writerId="shared")
    assert sorted(committed_numbers(server, target)) == list(range(200))


@pytest.mark.full("four queries through Spark; test_server_sink shows the same without Spark")
def test_a_query_that_starts_from_an_older_copy_of_its_checkpoint_is_refused_and_no_row_is_lost(
    spark: SparkSession, server: StreamServer, source: Stream, target: Stream, tmp_path: Path
) -> None:
    options, frame = server.options(target), stream_rows(spark, server, source)
    copy_available(frame, options, tmp_path / "c")
    shutil.copytree(tmp_path / "c", tmp_path / "older")
    for first in (200, 250):
        commit_values(source, first, first + 50)
        copy_available(frame, options, tmp_path / "c")
    with pytest.raises(PySparkException, match="an older copy of its checkpoint"):
        copy_available(frame, options, tmp_path / "older")
    assert sorted(committed_numbers(server, target)) == list(range(300))


@pytest.mark.full("three queries through Spark; test_server_sink shows the same without Spark")
def test_the_query_that_starts_later_fences_another_query_with_the_same_writer_id(
    spark: SparkSession, server: StreamServer, source: Stream, target: Stream, tmp_path: Path
) -> None:
    frame, options, trigger = (
        stream_rows(spark, server, source),
        server.options(target),
        {"processingTime": "0 seconds"},
    )
    few = stream_rows(spark, server, source, maxRowsPerTrigger=60)
    ahead = copy_available(few, server.options(server.create_stream()), tmp_path / "ahead", writerId="w")
    older = start(frame, options, tmp_path / "older", trigger=trigger, writerId="w")
    try:
        wait_for_query(older, "its first batch", lambda: target.last_committed("w").transaction == 0)
        # its earlier micro-batches went to another stream
        newer = start(frame, options, tmp_path / "ahead", trigger=trigger, writerId="w", acceptGap="true")
        try:
            assert newer.id == ahead.id
            commit_values(source, 200, 250)
            wait_for_query(newer, "its next batch", lambda: target.last_committed("w", str(newer.id)).transaction > 0)
            commit_values(source, 250, 300)
            with pytest.raises(PySparkException) as fenced:
                older.awaitTermination(QUERY_TIMEOUT_S)
            assert f"run '{older.runId}' of writer 'w' is fenced: the later run '{newer.runId}'" in str(fenced.value)
        finally:
            newer.stop()
    finally:
        older.stop()


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

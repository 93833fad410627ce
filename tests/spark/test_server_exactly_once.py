"""From a stream to a stream through Spark, exactly once, whatever is repeated, lost or left behind.

``test_server_sink`` drives the sink through the same by hand: what only Spark shows is here, and the rest is ``full``.
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
from spark_jobs.session import begin
from tests.aeron.streams import number
from tests.spark.byhand import numbers, table
from tests.spark.queries import FINISH, await_that, read_stream
from tests.spark.served import Failing, Served, read, write, write_values

pytestmark = pytest.mark.usefixtures("copied")


def start(frame: DataFrame, options: dict[str, str], checkpoint: Path, **more: Any) -> StreamingQuery:
    """Start to write the stream ``frame``; ``trigger`` among ``more`` is Spark's, the rest are options."""
    trigger = more.pop("trigger", {"availableNow": True})
    writer = frame.writeStream.format("aeron").options(**options, **more).option("checkpointLocation", str(checkpoint))
    return begin(writer.trigger(**trigger).start)


def copy(frame: DataFrame, options: dict[str, str], checkpoint: Path, **more: Any) -> StreamingQuery:
    """Write what there is now, and raise what that failed with."""
    query = start(frame, options, checkpoint, **more)
    try:
        assert query.awaitTermination(FINISH), f"still running after {FINISH} s: {query.status}"
    finally:
        query.stop()
    return query


def values(served: Served, stream: Stream) -> list[int]:
    return numbers(served.options(stream))


def forget_last_commit(checkpoint: Path) -> int:
    """Take the last batch's commit out of a checkpoint, as if Spark had died before it wrote that; return the batch."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last


@pytest.fixture
def source(served: Served) -> Stream:
    made = served.stream(2)
    write_values(made, 0, 100)
    write_values(made, 100, 200, partition=1)
    return made


@pytest.fixture
def target(served: Served) -> Stream:
    return served.stream(2)


def rows_of(spark: SparkSession, served: Served, source: Stream, **more: object) -> DataFrame:
    return read_stream(spark, served.options(source), **more).select("value")


@pytest.mark.full("two queries through Spark; test_server_sink drives the sink through the same by hand")
def test_a_copy_is_equal_over_a_commit_that_failed_and_a_restart(
    spark: SparkSession, served: Served, source: Stream, target: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is committed on the server, and Spark does not know: it comes again, in a run of its own."""
    monkeypatch.setattr(target, "commit", Failing(target.commit, done=True))
    frame, options = rows_of(spark, served, source, maxRowsPerTrigger=150), served.options(target)
    first = start(frame, options, tmp_path / "c")
    with pytest.raises(PySparkException, match="the commit failed, for a test"):
        first.awaitTermination(FINISH)
    first.stop()
    assert len(values(served, target)) == 150
    write_values(source, 200, 300)
    query = copy(frame, options, tmp_path / "c")
    assert query.id == first.id
    assert target.last_transaction(query.id) == 1
    for partition in (0, 1):
        same, wanted = (
            [number(row["value"]) for row in table(served.options(one)).to_pylist() if row["recordingId"] == partition]
            for one in (target, source)
        )
        assert same == wanted
    with pytest.raises(RefusedError, match=f"fenced: the later run '{query.runId}'"):
        target.begin(query.id, first.runId, 2)


@pytest.mark.full("two queries and four reads through Spark; test_server_sink drives the sink through the same by hand")
def test_a_copy_is_equal_partition_by_partition_over_restarts(
    spark: SparkSession, served: Served, source: Stream, target: Stream, tmp_path: Path
) -> None:
    frame = rows_of(spark, served, source, maxRowsPerTrigger=60)
    query = copy(frame, served.options(target), tmp_path / "c")
    write_values(source, 200, 300)
    copy(frame, served.options(target), tmp_path / "c")
    for partition in (0, 1):
        first, second = (
            [number(row.value) for row in read(spark, served.options(one)).collect() if row.recordingId == partition]
            for one in (source, target)
        )
        assert first == second
    assert target.last_transaction(str(query.id)) == int(
        max(path.name for path in (tmp_path / "c" / "commits").glob("[0-9]*"))
    )


@pytest.mark.full("two queries a case through Spark; test_server_sink drives the sink through the same by hand")
@pytest.mark.parametrize("partitions", [2, 3], ids=["as it was", "in other partitions"])
def test_a_batch_whose_commit_spark_forgot_is_dropped_when_it_comes_again(
    spark: SparkSession, served: Served, source: Stream, target: Stream, tmp_path: Path, partitions: int
) -> None:
    frame = rows_of(spark, served, source)
    copy(frame, served.options(target), tmp_path / "c")
    before = target.states()
    assert forget_last_commit(tmp_path / "c") == 0
    again = frame if partitions == 2 else frame.repartition(partitions)
    copy(again, served.options(target), tmp_path / "c")
    assert target.states() == before
    assert sorted(values(served, target)) == list(range(200))


@pytest.mark.full("two queries a case through Spark; test_server_sink drives the sink through the same by hand")
@pytest.mark.parametrize("done", [False, True], ids=["before it was done", "after it was done"])
def test_a_commit_that_fails_fails_the_query_and_its_rows_come_once(
    spark: SparkSession, served: Served, source: Stream, target: Stream, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, done: bool,
) -> None:  # fmt: skip
    failing = Failing(target.commit, done=done)
    monkeypatch.setattr(target, "commit", failing)
    with pytest.raises(PySparkException, match="the commit failed, for a test"):
        copy(rows_of(spark, served, source), served.options(target), tmp_path / "c")
    assert failing.failed
    assert len(values(served, target)) == (200 if done else 0)  # what was aborted after its commit stays
    copy(rows_of(spark, served, source), served.options(target), tmp_path / "c")
    assert sorted(values(served, target)) == list(range(200))


@pytest.mark.full("a query through Spark; test_server_sink drives the sink through the same by hand")
def test_a_batch_without_rows_is_a_transaction(
    spark: SparkSession, served: Served, source: Stream, target: Stream, tmp_path: Path
) -> None:
    frame = rows_of(spark, served, source).where("value is null")
    copy(frame, served.options(target), tmp_path / "c", writerId="empty")
    assert target.last_transaction("empty") == 0
    assert [state.end for state in target.states()] == [0, 0]


@pytest.mark.full("two queries through Spark; test_server_sink drives the sink through the same by hand")
def test_a_later_run_fences_off_the_earlier_one(
    spark: SparkSession, served: Served, source: Stream, target: Stream, tmp_path: Path
) -> None:
    options, frame = served.options(target), rows_of(spark, served, source)
    older = start(frame, options, tmp_path / "c", trigger={"processingTime": "0 seconds"}, writerId="w")
    try:
        await_that(older, "its first batch", lambda: target.last_transaction("w") == 0)
        target.begin("w", "the later run", 1)  # as another cluster would that was given the checkpoint
        write_values(source, 200, 250)
        with pytest.raises(PySparkException, match="the later run"):
            older.awaitTermination(FINISH)
    finally:
        older.stop()
    assert len(values(served, target)) == 200
    copy(frame, options, tmp_path / "c", writerId="w")
    assert sorted(values(served, target)) == list(range(250))
    with pytest.raises(RefusedError, match="fenced"):
        target.begin("w", "the later run", 2)


@pytest.mark.full("four queries through Spark; test_server_sink drives the sink through the same by hand")
def test_an_equal_batch_of_another_query_is_refused_and_not_swallowed_and_a_restart_is_a_repeat(
    spark: SparkSession, served: Served, source: Stream, target: Stream, tmp_path: Path
) -> None:
    """Both have batch 0 only: by writer and batch they cannot be told apart."""
    frame, options = rows_of(spark, served, source), served.options(target)
    first = copy(frame, options, tmp_path / "one", writerId="shared")
    assert target.last_transaction("shared") == 0
    with pytest.raises(PySparkException, match=rf"'shared' is committed by another producer's run '{first.runId}'"):
        copy(frame.where("value like '1%'"), options, tmp_path / "two", writerId="shared")
    with pytest.raises(PySparkException, match="another producer's run"):
        copy(frame.where("value is null"), options, tmp_path / "three", writerId="shared")
    assert forget_last_commit(tmp_path / "one") == 0
    copy(frame, options, tmp_path / "one", writerId="shared")
    assert sorted(values(served, target)) == list(range(200))


@pytest.mark.full("four queries through Spark; test_server_sink drives the sink through the same by hand")
def test_an_older_copy_of_a_checkpoint_is_refused_and_nothing_is_dropped(
    spark: SparkSession, served: Served, source: Stream, target: Stream, tmp_path: Path
) -> None:
    options, frame = served.options(target), rows_of(spark, served, source)
    copy(frame, options, tmp_path / "c")
    shutil.copytree(tmp_path / "c", tmp_path / "older")
    for first in (200, 250):
        write_values(source, first, first + 50)
        copy(frame, options, tmp_path / "c")
    with pytest.raises(PySparkException, match="an older copy of its checkpoint"):
        copy(frame, options, tmp_path / "older")
    assert sorted(values(served, target)) == list(range(300))


@pytest.mark.full("three queries through Spark; test_server_sink drives the sink through the same by hand")
def test_two_queries_of_one_name_the_one_that_is_behind_is_fenced_off(
    spark: SparkSession, served: Served, source: Stream, target: Stream, tmp_path: Path
) -> None:
    frame, options, again = rows_of(spark, served, source), served.options(target), {"processingTime": "0 seconds"}
    few = rows_of(spark, served, source, maxRowsPerTrigger=60)
    ahead = copy(few, served.options(served.stream()), tmp_path / "ahead", writerId="w")
    older = start(frame, options, tmp_path / "older", trigger=again, writerId="w")
    try:
        await_that(older, "its first batch", lambda: target.last_transaction("w") == 0)
        # its earlier micro-batches went to another stream
        newer = start(frame, options, tmp_path / "ahead", trigger=again, writerId="w", acceptGap="true")
        try:
            assert newer.id == ahead.id
            write_values(source, 200, 250)
            await_that(newer, "its next batch", lambda: target.last_transaction("w", str(newer.id)) > 0)
            write_values(source, 250, 300)
            with pytest.raises(PySparkException) as fenced:
                older.awaitTermination(FINISH)
            assert f"run '{older.runId}' of writer 'w' is fenced: the later run '{newer.runId}'" in str(fenced.value)
        finally:
            newer.stop()
    finally:
        older.stop()


def test_arrow_rows_are_aggregated_and_written_back_once(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    source, target = served.stream(2), served.stream()
    write(spark.range(0, 1_000, 1, 4).selectExpr("id % 3 as plane", "id"), served.options(source))
    flights = spark.readStream.format("aeron").options(**served.options(source), startingOffsets="earliest").load()
    counted = flights.groupBy("plane").count()
    writer = counted.writeStream.format("aeron").outputMode("complete").options(**served.options(target))
    running = begin(writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start)
    assert running.awaitTermination(FINISH)
    running.stop()
    found = read(spark, served.options(target)).collect()
    assert sorted((row.plane, row["count"]) for row in found) == [(0, 334), (1, 333), (2, 333)]

"""The jobs of ``spark_jobs`` in the session of the other tests: from Aeron into Delta, and through a server.

``tests/e2e/test_jobs.py`` runs them with spark-submit and a separate Spark, which costs ten times as much.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import aeron_spark
from aeron_spark.direct.writing import DirectAppender
from aeron_spark.jobs import audit
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.log.query import QueryPlanner
from aeron_spark.log.writing import Source
from aeron_spark.node import NodeHandle
from aeron_spark.options import ReadOptions, WriteOptions
from aeron_spark.options.values import parse_end
from aeron_spark.spark.reader import open_planning_log
from demo.comparing import compare
from demo.flights import SCHEMA, load
from tests.aeron.streams import Stream, number, numbered
from tests.e2e.processes import read_table
from tests.programs import ROOT
from tests.spark.queries import read_batch
from tests.spark.stream_server import StreamServer, commit_values, read_frame

ROWS: Final = 1000
STREAM: Final = "9502"  # no other test uses it

pytestmark = pytest.mark.delta


@pytest.fixture(scope="module")
def patches(spark: SparkSession) -> Iterator[pytest.MonkeyPatch]:
    """Let the jobs take the session of the other tests, and not stop it."""
    with pytest.MonkeyPatch.context() as made:
        made.setattr(SparkSession, "stop", lambda session: None)
        yield made


def run(patches: pytest.MonkeyPatch, job: str, options: Mapping[str, str], *arguments: str) -> None:
    """Run a job to its end, as a program; ``options`` are those of its stream."""
    patches.setattr(sys, "argv", [job, *arguments, *(f"--option={name}={value}" for name, value in options.items())])
    runpy.run_path(str(ROOT / "spark_jobs" / f"{job}.py"), run_name="__main__")


def query_arguments(table: Path, checkpoint: Path) -> list[str]:
    return [f"--table={table}", f"--checkpoint={checkpoint}", "--available-now"]


def received(options: Mapping[str, str]) -> pa.Table:
    """Return the rows of a server's stream, read by a client."""
    with aeron_spark.connect(
        options["server"], identity=options["identity"], server_key=options["serverKey"],
        aeron_dir=options["aeronDir"], store=MemoryPeerStore(), timeout=60.0,
    ) as client:  # fmt: skip
        return pa.Table.from_batches(list(client.reader(options["stream"])))


@pytest.fixture(scope="module")
def table(patches: pytest.MonkeyPatch, node: NodeHandle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table that the first job makes of published flights, in several batches."""
    folder = tmp_path_factory.mktemp("jobs")
    direct = {"channel": "aeron:ipc", "streamId": STREAM, "aeronDir": node.aeron_dir}
    sink = WriteOptions.parse({**direct, "record": "auto", "ack": "archive"}, streaming=False)
    appender = DirectAppender(sink, Source("flights"))
    for batch in load(ROWS).to_batches(max_chunksize=100):
        appender.arrow(batch)
    appender.finish()
    source = {**direct, "startingOffsets": "earliest", "maxBytesPerTrigger": "100k"}
    run(patches, "aeron_to_delta", source, *query_arguments(folder / "flights", folder / "checkpoint"))
    assert len(os.listdir(folder / "checkpoint" / "commits")) > 1, "the limit makes several batches of it"
    return folder / "flights"


def test_the_first_job_writes_the_published_flights_into_delta(table: Path) -> None:
    comparison = compare(load(ROWS), read_table(table).cast(SCHEMA))
    assert comparison.equal, comparison.sentence


def test_the_second_job_writes_flights_through_a_server(
    patches: pytest.MonkeyPatch, table: Path, server: StreamServer, tmp_path: Path
) -> None:
    options = server.options(server.create_stream(2))
    run(patches, "delta_to_aeron", options, *query_arguments(table, tmp_path / "checkpoint"))
    comparison = compare(load(ROWS), received(options).cast(SCHEMA))
    assert comparison.equal, comparison.sentence


def test_a_backfill_copies_a_range_of_positions_once(
    patches: pytest.MonkeyPatch, spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    publisher = stream.publisher()
    positions, key = publisher.send(numbered(0, 100)), publisher.key
    arguments = [
        f"--table={tmp_path / 'range'}", f"--checkpoint={tmp_path / 'checkpoint'}",
        f"--start={json.dumps({key: positions[20]})}", f"--end={json.dumps({key: positions[70]})}",
    ]  # fmt: skip
    options = {**stream.options, "payload": "raw", "maxRowsPerTrigger": "30"}
    for _ in range(2):  # the second run finds the range copied
        run(patches, "backfill", options, *arguments)
        copied = sorted(number(value) for value in read_table(tmp_path / "range").column("value").to_pylist())
        assert copied == list(range(20, 70))
    assert {"0", "1"} <= set(os.listdir(tmp_path / "checkpoint" / "commits")), "the limit makes two batches of it"


def test_a_mirror_copies_a_stream_to_a_server(
    patches: pytest.MonkeyPatch, table: Path, node: NodeHandle, server: StreamServer, tmp_path: Path
) -> None:
    """The rows are Arrow batches, which stay Arrow batches."""
    source = {"channel": "aeron:ipc", "streamId": STREAM, "aeronDir": node.aeron_dir, "startingOffsets": "earliest"}
    target = server.options(server.create_stream(2))
    copy = [f"--target-option={name}={value}" for name, value in target.items()]
    run(patches, "mirror", source, f"--checkpoint={tmp_path}", "--available-now", *copy)
    comparison = compare(load(ROWS), received(target).cast(SCHEMA))
    assert comparison.equal, comparison.sentence


@pytest.mark.full("another query of seconds; the other direction is in make test")
def test_a_mirror_copies_raw_messages_of_a_server_to_a_channel(
    patches: pytest.MonkeyPatch, spark: SparkSession, server: StreamServer, stream: Stream, tmp_path: Path
) -> None:
    source = server.create_stream(2)
    commit_values(source, 0, 50)
    commit_values(source, 50, 90, partition=1)
    copy = [f"--target-option={name}={value}" for name, value in {**stream.options, "ack": "archive"}.items()]
    options = {**server.options(source), "startingOffsets": "earliest"}
    run(patches, "mirror", options, f"--checkpoint={tmp_path}", "--available-now", *copy)
    copied = read_batch(spark, stream.options).select("value").collect()
    assert sorted(number(row.value) for row in copied) == list(range(90))


def test_an_audit_of_a_copied_table_finds_no_fault(
    patches: pytest.MonkeyPatch, table: Path, node: NodeHandle, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"channel": "aeron:ipc", "streamId": STREAM, "aeronDir": node.aeron_dir}
    run(patches, "audit", options, f"--table={table}", f"--checkpoint={table.parent / 'checkpoint'}")
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "stream": ROWS, "table": ROWS, "missing": 0, "repeated": 0, "changed": 0, "only_in_table": 0,
    }  # fmt: skip


OF_STREAM: Final = [(1, "a"), (2, "b"), (2, "b"), (3, "c"), (4, None)]


@pytest.mark.parametrize(
    ("key", "rows", "numbers", "examples"),
    [
        (["id"], OF_STREAM, (0, 0, 0, 0), []),
        (["id"], [(1, "a"), (2, "b"), (2, "b"), (3, "C"), (4, "")], (0, 0, 2, 0), ["changed", "changed"]),
        (["id"], [(2, "b"), (3, "c"), (4, None), (5, "e")], (2, 0, 0, 1), ["missing", "missing"]),
        (["id"], [*OF_STREAM, (1, "a"), (3, "x")], (0, 2, 1, 0), ["repeated", "repeated"]),
        ([], [(1, "a"), (2, "b"), (3, "C"), (3, "C"), (4, None)], (2, 0, 0, 2), ["missing", "missing"]),
        ([], [*OF_STREAM, (2, "b")], (0, 1, 0, 0), ["repeated"]),
    ],
)
def test_an_audit_counts_each_fault(
    spark: SparkSession,
    key: list[str],
    rows: list[tuple[int, str | None]],
    numbers: tuple[int, ...],
    examples: list[str],
) -> None:
    schema = "id INT, name STRING"
    found = audit.compare(spark.createDataFrame(OF_STREAM, schema), spark.createDataFrame(rows, schema), key)
    assert (found.missing, found.repeated, found.changed, found.only_in_table) == numbers
    assert (found.stream, found.table) == (len(OF_STREAM), len(rows))
    assert [kind for kind, _ in found.examples] == examples
    assert found.is_clean == (not examples)


def test_an_audit_of_a_table_without_the_columns_of_the_stream_is_refused(
    patches: pytest.MonkeyPatch, table: Path, stream: Stream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.publisher().send(numbered(0, 1))
    with pytest.raises(SystemExit) as ended:
        run(patches, "audit", stream.options, f"--table={table}")
    assert ended.value.code == 2
    assert "has no column 'value', which the stream has" in capsys.readouterr().err


def write_checkpoint(folder: Path, options: Mapping[str, str], end: str = "latest") -> str:
    """Write what a query stores that has read a stream up to ``end``; return the argument."""
    parsed = ReadOptions.parse({**options, "startingOffsets": "earliest"}, streaming=True)
    planner = QueryPlanner(parsed, open_planning_log, framed=False)
    start = planner.initial()
    planner.prepare_available_now(parse_end(end))
    offset = json.dumps(planner.latest(start, limited=False).to_dict())
    for name, text in (("offsets", f"v1\n{{}}\n{offset}"), ("commits", "v1\n{}")):
        (folder / name).mkdir(parents=True)
        (folder / name / "10").write_text(text)
        (folder / name / "9").write_text("v1")
    (folder / "offsets" / "11").write_text("v1")  # of a micro-batch that is not committed
    return f"--checkpoint={folder}"


def test_retention_purges_a_recording_before_the_slowest_checkpoint(
    patches: pytest.MonkeyPatch, spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    publisher = stream.publisher()
    positions = publisher.send(numbered(0, 300, 4000))
    slow = write_checkpoint(tmp_path / "slow", stream.options, json.dumps({publisher.key: positions[200]}))
    checkpoints = [write_checkpoint(tmp_path / "fast", stream.options), slow]
    run(patches, "retention", stream.options, *checkpoints)
    assert publisher.descriptor.start_position == 0, "without --purge, nothing is deleted"
    for _ in range(2):
        run(patches, "retention", stream.options, *checkpoints, "--purge", "--keep=256KiB")
        assert publisher.descriptor.start_position == 2 << 18, "the segment with position 200 - 256 KiB stays"


def test_retention_purges_the_partitions_of_a_server(
    patches: pytest.MonkeyPatch, spark: SparkSession, server: StreamServer, tmp_path: Path
) -> None:
    source = server.create_stream(2)
    options = server.options(source)
    commit_values(source, 0, 10)
    checkpoint = write_checkpoint(tmp_path / "one", options)
    commit_values(source, 10, 20)
    commit_values(source, 20, 30, partition=1)
    run(patches, "retention", options, checkpoint, "--purge")
    left = read_frame(spark, options, payload="raw").collect()
    assert sorted(number(row.value) for row in left) == list(range(10, 30))


def test_retention_of_another_stream_than_that_of_the_checkpoint_is_refused(
    patches: pytest.MonkeyPatch, table: Path, stream: Stream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.publisher().send(numbered(0, 1))
    with pytest.raises(SystemExit) as ended:
        run(patches, "retention", stream.options, f"--checkpoint={table.parent / 'checkpoint'}", "--purge")
    assert ended.value.code == 2
    assert "is not of stream" in capsys.readouterr().err


def test_a_change_feed_is_published_with_its_inserts_updates_and_deletes(
    patches: pytest.MonkeyPatch, spark: SparkSession, server: StreamServer, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    properties = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    spark.sql(f"CREATE TABLE delta.`{table}` (id INT, name STRING) USING delta {properties}")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1, 'a'), (2, 'b')")
    spark.sql(f"UPDATE delta.`{table}` SET name = 'B' WHERE id = 2")
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 1")
    options = server.options(server.create_stream())
    columns = [f"--column={name}" for name in ("id", "name", "_change_type")]
    arguments = [*query_arguments(table, tmp_path / "checkpoint"), "--table-option=startingVersion=0", *columns]
    run(patches, "delta_to_aeron", options, *arguments, "--change-feed")
    changes = [tuple(row.values()) for row in received(options).to_pylist()]
    assert sorted(changes) == [
        (1, "a", "delete"), (1, "a", "insert"), (2, "B", "update_postimage"), (2, "b", "insert"),
        (2, "b", "update_preimage"),
    ]  # fmt: skip

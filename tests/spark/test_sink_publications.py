"""A worker of Spark reuses its publications in later tasks, and replaces an Aeron client that has closed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from aeron_spark.aeron.client import client_of
from aeron_spark.aeron.counters import read_backlog, read_counters
from aeron_spark.jobs.session import begin
from aeron_spark.node import NodeHandle
from aeron_spark.waiting import wait_for
from tests.aeron.streams import own_node
from tests.spark.queries import wait_for_query
from tests.spark.simulated_engine import make_numbered_batch, read_numbers, save
from tests.waiting import suspend

STREAMS = (1101, 1102)


def options(handle: NodeHandle, **more: str) -> dict[str, str]:
    """Return the options of a sink on the node of ``handle``."""
    return {"channel": "aeron:ipc", "streamId": str(STREAMS[0]), "aeronDir": handle.aeron_dir, "record": "auto", **more}


def workers(aeron_dir: str) -> list[psutil.Process]:
    """Return the Python workers of this session that are clients of the driver in ``aeron_dir``."""
    gateway = SparkContext._gateway
    assert gateway is not None
    found = []
    for process in psutil.Process(gateway.proc.pid).children(recursive=True):
        try:
            if "pyspark.worker" not in process.cmdline():  # a process that plans or commits
                continue
            maps = Path(f"/proc/{process.pid}/maps").read_text(errors="replace")
        except (OSError, psutil.Error):  # the process has ended
            continue
        if f"{aeron_dir}/cnc.dat" in maps:
            found.append(process)
    return found


def open_publications(aeron_dir: str) -> list[tuple[int, int]]:
    """Return stream id and Aeron session id of all publications on the test's streams, from the driver's counters."""
    return [
        (backlog.stream_id, backlog.session_id)
        for backlog in read_backlog(aeron_dir)
        if backlog.stream_id in STREAMS and backlog.publisher_position is not None
    ]


@pytest.mark.parametrize("batches", [8, pytest.param(100, marks=pytest.mark.full("a minute; 8 batches show the same"))])
def test_after_many_micro_batches_each_worker_has_one_publication_for_each_stream(
    spark: SparkSession, node: NodeHandle, tmp_path: Path, batches: int
) -> None:
    rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch="4", numPartitions="2").load()
    rows = rate.selectExpr("cast(value AS string) AS value", f"cast(value % 2 + {STREAMS[0]} AS int) AS streamId")
    writer = rows.writeStream.format("aeron").options(**options(node, payload="raw"))
    query = begin(writer.option("checkpointLocation", str(tmp_path)).trigger(processingTime="0 seconds").start)
    try:

        def has_run_enough() -> bool:
            progress = query.lastProgress
            return progress is not None and progress["batchId"] >= batches

        wait_for_query(query, f"{batches} micro-batches", has_run_enough)
        publications = open_publications(node.aeron_dir)
        used = len(workers(node.aeron_dir))
    finally:
        query.stop()
    assert len(set(publications)) == len(publications)
    assert {stream for stream, _ in publications} == set(STREAMS)
    assert 0 < used < batches  # there are two task slots, and Spark uses other processes for other kinds of work
    assert len(publications) <= used * len(STREAMS), (publications, used)
    for stream in STREAMS:
        read = spark.read.format("aeron").options(**options(node, streamId=str(stream), payload="raw")).load()
        found = read.selectExpr("count(*)", "count(DISTINCT sessionId)", "count(DISTINCT value)").first()
        assert found is not None
        count, recorded_sessions, distinct = found
        assert count >= batches * 2
        assert recorded_sessions <= used
        assert distinct <= count  # Spark may repeat a batch that it has stopped


@pytest.fixture
def short_timeout_node(run_name: str) -> Iterator[NodeHandle]:
    """A node whose driver times a silent client out after two seconds instead of ten."""
    with own_node(run_name, properties={"aeron.client.liveness.timeout": "2s"}) as handle:
        yield handle


@pytest.mark.full(
    "new clients of all of Spark's processes connect to a separate node; the test below closes a client itself"
)
def test_a_worker_replaces_its_client_after_a_stop_longer_than_the_client_timeout(
    spark: SparkSession, short_timeout_node: NodeHandle
) -> None:
    def write(first: int) -> None:
        rows = spark.range(first, first + 100, numPartitions=2).selectExpr("cast(id AS string) AS value")
        rows.write.format("aeron").mode("append").options(
            **options(short_timeout_node, payload="raw", ack="archive")
        ).save()

    def clients() -> int:
        return sum(
            counter.label.startswith("client-heartbeat") and "aeron-spark" in counter.label
            for counter in read_counters(short_timeout_node.aeron_dir)
        )

    write(0)
    before = open_publications(short_timeout_node.aeron_dir)
    stopped = workers(short_timeout_node.aeron_dir)
    assert stopped
    # A client adds its name to its counter's label some time after its start.
    wait_for(lambda: clients() >= len(stopped), 30, "the name of every worker's client", state=lambda: str(clients()))
    for process in stopped:
        suspend(process.pid)
    try:
        wait_for(
            lambda: not open_publications(short_timeout_node.aeron_dir),
            30,
            "the driver to time the stopped clients out",
        )
    finally:
        for process in stopped:
            os.kill(process.pid, signal.SIGCONT)
    write(100)  # Spark makes one attempt for each task, so a failed task would fail the write
    after = open_publications(short_timeout_node.aeron_dir)
    assert after
    assert not set(before) & set(after)
    assert any(
        process.is_running() for process in stopped
    )  # the workers have recovered; Spark has not replaced all of them
    read = spark.read.format("aeron").options(**options(short_timeout_node, payload="raw")).load()
    assert sorted(int(bytes(row.value)) for row in read.select("value").collect()) == list(range(200))


def test_a_process_whose_client_has_closed_makes_a_new_one_and_publishes(node: NodeHandle) -> None:
    """The driver closes a client in the same way after a stop longer than its timeout."""
    archived = options(node, streamId="1103", ack="archive")
    save(archived, [make_numbered_batch(0, 10)])
    closed = client_of(node.aeron_dir)
    closed.aeron.close()
    save(archived, [make_numbered_batch(10, 20)])
    assert client_of(node.aeron_dir) is not closed
    assert read_numbers(options(node, streamId="1103")) == list(range(20))

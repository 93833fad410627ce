"""kill -9 of a process of a query, or of its server, in the middle of a batch: the copy has each row once, in order.

``tests/e2e/test_exactly_once.py`` and ``test_exactly_once_server.py`` kill more, at points of chance, in a Spark of
their own; here each point is fixed, and a query runs in the session that all tests share.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psutil
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from aeron_spark.errors import AeronSparkError
from aeron_spark.node import NodeHandle
from aeron_spark.pool import POOL
from spark_jobs.session import begin, missed_its_start
from tests.aeron.streams import TIMEOUT_S, Stream, number, numbered, open_stream
from tests.e2e.faulty_server import PUBLISHED
from tests.e2e.served import ServerProgram
from tests.e2e.stream_program import connected
from tests.spark.queries import QUERY_TIMEOUT_S, CollectingSink, read_stream, run_query, run_to_end, wait_for_query
from tests.spark.simulated_engine import Query, Sink, Task, make_batch, make_numbered_batch, read_table, save
from tests.spark.stream_server import StreamServer, commit_values
from tests.waiting import poll_until

ROWS: Final = 30  # in a partition
MOST_FAILURES: Final = 5  # of a query whose server is killed once; a restarted server refuses nothing


def holding(folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step that hands on its rows, and waits while the file ``hold`` is in the folder.

    A file in ``busy`` there, named by its process, says that it waits.
    """

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import time
        from pathlib import Path

        yield from batches
        hold = Path(folder, "hold")
        if hold.exists():
            Path(folder, "busy", str(os.getpid())).touch()
        while hold.exists():  # the test's kill ends the wait, or its end of the file
            time.sleep(0.02)

    return step


def by_partition(options: dict[str, str]) -> dict[int, list[int]]:
    """Return the numbers that a stream holds, by partition and in order."""
    found: dict[int, list[int]] = {}
    for row in read_table(options).select(["recordingId", "value"]).to_pylist():
        found.setdefault(row["recordingId"], []).append(number(row["value"]))
    return found


def begun_until(start: Callable[[], StreamingQuery], wait: Callable[[StreamingQuery], object]) -> StreamingQuery:
    """Begin a query and ``wait`` for something of it; one whose process came up too late for Spark is begun again."""
    while True:
        query = begin(start)
        try:
            wait(query)
            return query
        except BaseException:
            query.stop()
            if not missed_its_start(query):
                raise


def run(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Run a query to its end."""

    def wait(query: StreamingQuery) -> None:
        assert query.awaitTermination(QUERY_TIMEOUT_S), query.status

    return begun_until(start, wait)


@pytest.mark.usefixtures("server_route_warmed_up")
def test_a_copy_whose_python_worker_is_killed_in_a_batch_goes_on_and_has_each_row_once_in_order(
    spark: SparkSession, server: StreamServer, tmp_path: Path
) -> None:
    source, target = server.create_stream(1), server.create_stream(1)
    commit_values(source, 0, 60)
    hold, busy = tmp_path / "hold", tmp_path / "busy"
    busy.mkdir()
    hold.touch()
    rows = read_stream(spark, server.options(source)).select("value").mapInArrow(holding(str(tmp_path)), "value binary")
    # a shuffle: the kill takes no worker of the sink with it, whose JVM would have to start again
    writer = rows.repartition(1).writeStream.format("aeron").options(**server.options(target))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)

    query = begun_until(
        writer.start,
        lambda query: wait_for_query(query, "a worker in the middle of a task", lambda: any(busy.iterdir())),
    )
    try:
        (worker,) = busy.iterdir()
        os.kill(int(worker.name), signal.SIGKILL)
        with pytest.raises(StreamingQueryException, match="Python worker exited unexpectedly"):
            query.awaitTermination(QUERY_TIMEOUT_S)
    finally:
        hold.unlink()
        query.stop()
    assert target.last_transaction(str(query.id)) == -1, "the batch was committed before the kill"

    again = run(writer.start)
    assert again.id == query.id
    assert target.last_transaction(str(query.id)) == 0
    assert by_partition(server.options(target)) == by_partition(server.options(source)) == {0: list(range(60))}


@pytest.fixture
def server_process(shared_node: NodeHandle, tmp_path: Path) -> Iterator[ServerProgram]:
    """A server in a separate process, on the shared node, with a separate store."""
    folder = tmp_path / "server"
    one = ServerProgram(Path(shared_node.aeron_dir), folder, "--streams-dir", str(folder / "streams"))
    yield one
    POOL.close()
    one.close()


def tasks_of(found: list[int]) -> list[Task]:
    """Return the numbers of a batch as rows, with a task for each partition of the source."""
    parts = ([one for one in found if one // ROWS == partition] for partition in (0, 1))
    return [[make_batch(*(f"{one}.".encode() for one in part))] for part in parts]


def test_a_copy_whose_server_is_killed_in_a_commit_goes_on_and_has_each_row_once_in_order(
    server_process: ServerProgram,
) -> None:
    """The server dies in micro-batch 1, when its rows are recorded and nothing says yet that they count.

    Source and sink are driven by hand: two starts of a server's process leave no CPU time for a query of Spark.
    """
    a, b = server_process.options("a"), server_process.options("b")
    with connected(a) as client:
        client.create_stream("a", 2)
        client.create_stream("b", 2)
        save(a, [make_numbered_batch(0, ROWS)], [make_numbered_batch(ROWS, 2 * ROWS)], payload="raw")
        query, sink = Query(a, maxRowsPerTrigger=20), Sink(b, payload="raw")
        failures: list[AeronSparkError] = []

        def copy_batch() -> bool:
            if not query.plan_batch():
                return False
            try:
                sink.write(query.committed_batches, *tasks_of(query.read_planned_batch()))
            except AeronSparkError as error:  # Spark ends the query, and it is begun again where it was
                failures.append(error)
                if len(failures) > MOST_FAILURES:
                    raise
                query.restart()
                sink.restart()
            else:
                query.commit()
            return True

        def copy_rest() -> None:
            while copy_batch():
                pass

        assert copy_batch()
        copying = threading.Thread(target=copy_rest)

        def meanwhile() -> str:
            if copying.ident is None:  # the point is armed by now
                copying.start()
            return f"{query.committed_batches} micro-batches, {failures}"

        server_process.fault(PUBLISHED, "b", meanwhile)
        copying.join(TIMEOUT_S)
        assert not copying.is_alive()
        assert by_partition(b) == by_partition(a) == {0: list(range(ROWS)), 1: list(range(ROWS, 2 * ROWS))}


@pytest.fixture
def stream(node: NodeHandle) -> Iterator[Stream]:
    """A recorded stream of the test's own."""
    for one in open_stream(node):
        yield one.record()


def planners(spark: SparkSession) -> set[psutil.Process]:
    """Return the processes in which Spark plans the batches of its streaming queries."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    found = set()
    for process in psutil.Process(gateway.proc.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("python_streaming_source_runner" in word for word in process.cmdline()):
                found.add(process)
    return found


def test_a_query_whose_planner_is_killed_in_a_batch_goes_on_and_has_each_row_of_a_recorded_stream_once(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    stream.publisher().send(numbered(0, 40))
    frame = read_stream(spark, stream.options, maxRowsPerTrigger=20)
    others = planners(spark)  # of queries of other tests, which are about to end
    killed: set[psutil.Process] = set()

    def kill_planner(_: int) -> None:
        if not killed:
            killed.update(planners(spark) - others)
            for planner in killed:
                planner.kill()

    seen = CollectingSink(before_batch=kill_planner)
    with run_query(frame, tmp_path, seen, availableNow=True) as query:
        poll_until(lambda: query.exception(), TIMEOUT_S, "the query to fail", state=lambda: str(query.status))
    assert killed
    assert seen.numbers == list(range(20))
    again = run_to_end(frame, tmp_path, seen)
    assert again.id == query.id
    assert seen.sizes == [20, 20]
    assert seen.numbers == list(range(40))

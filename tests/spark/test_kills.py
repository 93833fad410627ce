"""A query that copies a stream loses and repeats no row when one of its processes or its server is killed in a batch.

Here the points of the kills are fixed, and queries run in the shared session. ``tests/e2e/test_exactly_once.py`` and
``tests/e2e/test_exactly_once_server.py`` kill more processes, at random points, in separate Spark sessions.
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
from aeron_spark.jobs.session import begin, has_missed_start_deadline
from aeron_spark.node import NodeHandle
from aeron_spark.pool import POOL
from tests.aeron.streams import TIMEOUT_S, Stream, number, numbered
from tests.e2e.faulty_server import PUBLISHED
from tests.e2e.served import ServerProgram
from tests.e2e.stream_program import connected
from tests.spark.queries import QUERY_TIMEOUT_S, CollectingSink, read_stream, run_query, run_to_end, wait_for_query
from tests.spark.simulated_engine import Query, Sink, Task, make_batch, make_numbered_batch, read_table, save
from tests.spark.stream_server import StreamServer, commit_values
from tests.waiting import poll_until

pytestmark = pytest.mark.sampled

ROWS_PER_PARTITION: Final = 30
MAX_FAILURES: Final = 5  # of a query whose server is killed once, until the restarted server responds


def wait_while_held(folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that yields its rows unchanged, then waits while the file ``hold`` exists.

    While it waits, the folder ``busy`` has a file whose name is the id of the waiting process.
    """

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import time
        from pathlib import Path

        yield from batches
        hold = Path(folder, "hold")
        if hold.exists():
            Path(folder, "busy", str(os.getpid())).touch()
        while hold.exists():  # until the test kills this process or deletes the file
            time.sleep(0.02)

    return step


def numbers_by_partition(options: dict[str, str]) -> dict[int, list[int]]:
    """Return the numbers of a stream's rows, in order, by partition."""
    numbers: dict[int, list[int]] = {}
    for row in read_table(options).select(["recordingId", "value"]).to_pylist():
        numbers.setdefault(row["recordingId"], []).append(number(row["value"]))
    return numbers


def start_and_wait(start: Callable[[], StreamingQuery], wait: Callable[[StreamingQuery], object]) -> StreamingQuery:
    """Start a query and call ``wait`` with it; start it again if its Python process started too late for Spark."""
    while True:
        query = begin(start)
        try:
            wait(query)
            return query
        except BaseException:
            query.stop()
            if not has_missed_start_deadline(query):
                raise


def run_available(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Run a query until it ends."""

    def wait(query: StreamingQuery) -> None:
        assert query.awaitTermination(QUERY_TIMEOUT_S), query.status

    return start_and_wait(start, wait)


@pytest.mark.usefixtures("server_route_warmed_up")
def test_a_copy_has_each_row_once_in_order_after_its_python_worker_is_killed_in_a_batch(
    spark: SparkSession, server: StreamServer, tmp_path: Path
) -> None:
    source, target = server.create_stream(1), server.create_stream(1)
    commit_values(source, 0, 60)
    hold, busy = tmp_path / "hold", tmp_path / "busy"
    busy.mkdir()
    hold.touch()
    rows = (
        read_stream(spark, server.options(source))
        .select("value")
        .mapInArrow(wait_while_held(str(tmp_path)), "value binary")
    )
    # The shuffle separates the killed worker from those of the sink, whose JVMs would have to start again.
    writer = rows.repartition(1).writeStream.format("aeron").options(**server.options(target))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)

    query = start_and_wait(
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
    assert target.last_committed(str(query.id)).transaction == -1, "the batch was committed before the kill"

    again = run_available(writer.start)
    assert again.id == query.id
    assert target.last_committed(str(query.id)).transaction == 0
    assert (
        numbers_by_partition(server.options(target))
        == numbers_by_partition(server.options(source))
        == {0: list(range(60))}
    )


@pytest.fixture
def server_process(shared_node: NodeHandle, tmp_path: Path) -> Iterator[ServerProgram]:
    """A server in a separate process, on the shared node, with a separate store."""
    folder = tmp_path / "server"
    program = ServerProgram(Path(shared_node.aeron_dir), folder, "--streams-dir", str(folder / "streams"))
    yield program
    POOL.close()
    program.close()


def make_tasks(numbers: list[int]) -> list[Task]:
    """Return the numbers of a batch as rows, with one task for each partition of the source."""
    by_partition = ([one for one in numbers if one // ROWS_PER_PARTITION == partition] for partition in (0, 1))
    return [[make_batch(*(f"{one}.".encode() for one in part))] for part in by_partition]


def test_a_copy_has_each_row_once_in_order_after_its_server_is_killed_in_a_commit(
    server_process: ServerProgram,
) -> None:
    """The server is killed in micro-batch 1, after its rows are recorded and before its commit is in the journal.

    The engine is simulated: two starts of a server process leave no CPU time for a query of Spark.
    """
    a, b = server_process.options("a"), server_process.options("b")
    with connected(a) as client:
        client.create_stream("a", 2)
        client.create_stream("b", 2)
        save(
            a,
            [make_numbered_batch(0, ROWS_PER_PARTITION)],
            [make_numbered_batch(ROWS_PER_PARTITION, 2 * ROWS_PER_PARTITION)],
            payload="raw",
        )
        query, sink = Query(a, maxRowsPerTrigger=20), Sink(b, payload="raw")
        failures: list[AeronSparkError] = []

        def copy_batch() -> bool:
            if not query.plan_batch():
                return False
            try:
                sink.write(query.committed_batches, *make_tasks(query.read_planned_batch()))
            except AeronSparkError as error:  # Spark would end the query, and its user would start it again
                failures.append(error)
                if len(failures) > MAX_FAILURES:
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

        def start_copying() -> str:
            if copying.ident is None:  # the server calls this after the fault is set
                copying.start()
            return f"{query.committed_batches} micro-batches, {failures}"

        server_process.fault(PUBLISHED, "b", start_copying)
        copying.join(TIMEOUT_S)
        assert not copying.is_alive()
        expected = {0: list(range(ROWS_PER_PARTITION)), 1: list(range(ROWS_PER_PARTITION, 2 * ROWS_PER_PARTITION))}
        assert numbers_by_partition(b) == numbers_by_partition(a) == expected


def find_planners(spark: SparkSession) -> set[psutil.Process]:
    """Return the processes in which Spark plans the batches of its streaming queries."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    planners = set()
    for process in psutil.Process(gateway.proc.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("python_streaming_source_runner" in word for word in process.cmdline()):
                planners.add(process)
    return planners


class PlannerKiller:
    """Kills once the planners that began after it was made: those of queries of other tests are about to end."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._others = find_planners(spark)
        self.killed: set[psutil.Process] = set()

    def kill(self) -> bool:
        """Kill the planners; return False if an earlier call has."""
        if self.killed:
            return False
        self.killed.update(find_planners(self._spark) - self._others)
        for planner in self.killed:
            planner.kill()
        return True


def test_a_query_reads_each_row_once_after_its_planning_process_is_killed_in_a_batch(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    stream.publisher().send(numbered(0, 40))
    frame = read_stream(spark, stream.options, maxRowsPerTrigger=20)
    killer = PlannerKiller(spark)
    seen = CollectingSink(before_batch=lambda _: killer.kill())
    with run_query(frame, tmp_path, seen, availableNow=True) as query:
        poll_until(lambda: query.exception(), TIMEOUT_S, "the query to fail", state=lambda: str(query.status))
    assert killer.killed
    assert seen.numbers == list(range(20))
    again = run_to_end(frame, tmp_path, seen)
    assert again.id == query.id
    assert seen.sizes == [20, 20]
    assert seen.numbers == list(range(40))

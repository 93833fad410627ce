"""A Spark driver in a separate process, which tests may kill. It reads requests as lines of JSON, and prints responses.

python -m tests.e2e.spark_program '{"master": "local[2,4]", "folder": "/tmp/...", "conf": {}}'
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from aeron_spark.jobs.session import await_removal, has_missed_start_deadline
from tests.e2e import message_tables
from tests.spark_conf import DELTA, JAVA_OPTIONS, spark_conf

RESPONSE_PREFIX: Final = "@@"  # other lines on standard output are Spark's
HOLD_TIMEOUT_S: Final = 120.0  # of a task that waits for a file

ROWS: Final = StructType(
    [
        StructField("value", BinaryType()),
        StructField("recordingId", LongType()),
        StructField("position", LongType()),
        StructField("attempt", IntegerType()),
    ]
)
EVENTS: Final = StructType([StructField("id", LongType()), StructField("text", BinaryType())])


def session(settings: dict[str, Any]) -> SparkSession:
    """Start Spark with the settings of the command line."""
    conf = {
        **spark_conf(Path(settings["folder"])),
        "spark.executor.extraClassPath": f"{DELTA}/*",
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.databricks.delta.snapshotPartitions": "2",
        # Spark notices a killed worker within a test's timeout
        "spark.network.timeout": "60s",
        **settings.get("conf", {}),
    }
    builder = SparkSession.builder.master(settings["master"]).appName("aeron-spark end to end")
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def mapper(
    pause: float, hold: str | None, busy: str | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step that waits for ``pause`` seconds, and adds the task's attempt to its rows.

    While it runs, the folder ``busy`` has a file with the name of its process id. With ``hold``, the name of a file,
    the first attempt of partition 0 waits as long as the file exists, as on an overloaded machine.
    """

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        attempt = context.attemptNumber()
        mark = None if busy is None else Path(busy, str(os.getpid()))
        if mark is not None:
            mark.touch()
        if hold is not None and attempt == 0 and context.partitionId() == 0:
            end = time.monotonic() + HOLD_TIMEOUT_S
            while os.path.exists(hold) and time.monotonic() < end:
                time.sleep(0.02)
        time.sleep(pause)
        for batch in batches:
            attempts = pa.array([attempt] * batch.num_rows, pa.int32())
            yield pa.RecordBatch.from_arrays(
                [batch.column("value"), batch.column("recordingId"), batch.column("position"), attempts],
                names=["value", "recordingId", "position", "attempt"],
            )
        if mark is not None:
            mark.unlink(missing_ok=True)

    return step


def holding(hold: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step whose first attempt of partition 0 yields all rows, and waits as long as the file exists."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context.attemptNumber() == 0 and context.partitionId() == 0:
            end = time.monotonic() + HOLD_TIMEOUT_S
            while os.path.exists(hold) and time.monotonic() < end:
                time.sleep(0.02)

    return step


def failing(rows: int, length: int, go: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step that makes rows from each partition's number, and whose first attempt fails after them.

    It fails when the file ``go`` exists. The test creates the file after it has seen rows of the attempt.
    """

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            for seed in batch.column("id").to_pylist():
                first = seed * rows
                for at in range(first, first + rows, 100):
                    ids = list(range(at, min(at + 100, first + rows)))
                    texts = [str(one).encode().ljust(length, b".") for one in ids]
                    yield pa.RecordBatch.from_arrays(
                        [pa.array(ids, pa.int64()), pa.array(texts, pa.binary())], names=["id", "text"]
                    )
        if context.attemptNumber() == 0 and context.partitionId() == 0:
            end = time.monotonic() + HOLD_TIMEOUT_S
            while not os.path.exists(go) and time.monotonic() < end:
                time.sleep(0.02)
            raise RuntimeError(f"this task fails on purpose, after its {rows} rows")

    return step


class Program:
    """The requests; each is a method, and ``request`` has its name."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.queries: dict[str, StreamingQuery] = {}
        self._starts: dict[str, Callable[[], StreamingQuery]] = {}

    def start(self, name: str, options: dict[str, str], table: str, checkpoint: str, **more: Any) -> dict[str, Any]:
        """Start a query from Aeron into a Delta table."""
        read = self.spark.readStream.format("aeron").options(payload="raw", **options).load()
        rows = read.select("value", "recordingId", "position")
        step = mapper(float(more.get("pause", 0)), more.get("hold"), more.get("busy"))
        return self._run(name, rows.mapInArrow(step, ROWS), table, checkpoint)

    def distinct(self, name: str, options: dict[str, str], table: str, checkpoint: str) -> dict[str, Any]:
        """Start a query that drops the repeats of an at-least-once writer, as in docs/exactly-once.md."""
        read = self.spark.readStream.format("aeron").options(includeMetadata="true", **options).load()
        deduplicated = read.withWatermark("_aeron_timestamp", "10 minutes").dropDuplicatesWithinWatermark(
            ["_aeron_writer", "_aeron_batch", "_aeron_partition", "_aeron_row"]
        )
        return self._run(name, deduplicated.select("id", "text"), table, checkpoint, availableNow=True)

    def publish(self, name: str, options: dict[str, str], checkpoint: str, **more: Any) -> dict[str, Any]:
        """Start a query into Aeron whose first task fails once after its rows were published."""
        seeds = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", more["partitions"])
        read = seeds.option("numPartitions", more["partitions"]).load().selectExpr("value AS id")
        rows = read.mapInArrow(failing(more["rows"], more["length"], more["go"]), EVENTS)
        writer = rows.writeStream.format("aeron").options(**options).option("checkpointLocation", checkpoint)
        self._begin(name, writer.trigger(processingTime="1 hour").queryName(name).start)
        return {}

    def copy(
        self, name: str, source: dict[str, str], target: dict[str, str], checkpoint: str, hold: str | None = None
    ) -> dict[str, Any]:
        """Start a query from one stream of a server to another; ``hold`` is as in :func:`mapper`."""
        if name in self.queries:
            self.queries.pop(name).stop()
        read = self.spark.readStream.format("aeron").options(startingOffsets="earliest", **source).load()
        if hold is not None:
            read = read.mapInArrow(holding(hold), read.schema)
        writer = read.writeStream.format("aeron").options(**target).option("checkpointLocation", checkpoint)
        self._begin(name, writer.queryName(name).start)
        return {}

    def tables(
        self, name: str, options: dict[str, str], schema: str, label: int, folder: str, checkpoint: str, **trigger: Any
    ) -> dict[str, Any]:
        """Start a query from SBE messages into one Delta table a message type; see :mod:`tests.e2e.message_tables`."""
        if name in self.queries:
            self.queries.pop(name).stop()
        rows = message_tables.read_messages(self.spark, options, schema)
        writer = rows.writeStream.foreachBatch(message_tables.write_tables(name, Path(folder), label))
        writer = writer.option("checkpointLocation", checkpoint).queryName(name)
        self._begin(name, (writer.trigger(**trigger) if trigger else writer).start)
        return {}

    def export(self, table: str, path: str) -> dict[str, Any]:
        """Write the rows of a Delta table into an Arrow file."""
        message_tables.export_table(self.spark, table, path)
        return {}

    def _run(self, name: str, rows: DataFrame, table: str, checkpoint: str, **trigger: Any) -> dict[str, Any]:
        if name in self.queries:  # a query that failed, or one of a failed test
            self.queries.pop(name).stop()
        writer = rows.writeStream.format("delta").option("checkpointLocation", checkpoint).queryName(name)
        if trigger:
            writer = writer.trigger(**trigger)
        self._begin(name, lambda: writer.start(table))
        return {}

    def _begin(self, name: str, start: Callable[[], StreamingQuery]) -> None:
        self.queries[name] = start()
        self._starts[name] = start

    def stop(self, name: str) -> dict[str, Any]:
        """Stop a query at any moment."""
        self.queries.pop(name).stop()
        return {}

    def state(self, name: str) -> dict[str, Any]:
        """Return the state of a query; start it again if it missed Spark's timeout for its start."""
        if has_missed_start_deadline(self.queries[name]):
            await_removal(self.queries[name])
            self.queries[name] = self._starts[name]()
        query = self.queries[name]
        failure = query.exception()
        progress = query.lastProgress
        return {
            "active": query.isActive,
            "failure": None if failure is None else str(failure),
            "message": query.status["message"],
            "batch": -1 if progress is None else progress["batchId"],
        }

    def batch(self, options: dict[str, str]) -> dict[str, Any]:
        """Read the recorded rows of a stream as a batch."""
        rows = self.spark.read.format("aeron").options(includeMetadata="true", **options).load()
        found = rows.selectExpr("id", "_aeron_writer", "_aeron_batch", "_aeron_partition", "_aeron_row").collect()
        return {"rows": [list(row) for row in found]}

    def table(self, path: str) -> dict[str, Any]:
        """Count the rows of a Delta table with Spark."""
        rows = self.spark.read.format("delta").load(path)
        return {"rows": rows.count(), "distinct": rows.dropDuplicates().count()}

    def tasks(self) -> dict[str, Any]:
        """Return every task that Spark started, with its stage, partition, attempt and status."""
        store = self.spark.sparkContext._jsc.sc().statusStore()
        empty = self.spark.sparkContext._jvm.java.util.ArrayList()
        quantiles = getattr(store, "stageList$default$4")()
        found = []
        stages = store.stageList(empty, False, False, quantiles, empty)
        for index in range(stages.size()):
            stage = stages.apply(index)
            tasks = store.taskList(stage.stageId(), stage.attemptId(), 10_000)
            for at in range(tasks.size()):
                task = tasks.apply(at)
                found.append(
                    {
                        "stage": stage.stageId(),
                        "partition": task.partitionId(),
                        "attempt": task.attempt(),
                        "speculative": task.speculative(),
                        "status": task.status(),
                        "executor": task.executorId(),
                    }
                )
        return {"tasks": found}


def main(settings: dict[str, Any]) -> None:
    """Serve requests until standard input ends."""
    program = Program(session(settings))
    print(RESPONSE_PREFIX + json.dumps({"jvm": program.spark.sparkContext._gateway.proc.pid}), flush=True)
    for line in sys.stdin:
        arguments = json.loads(line)
        try:
            response = getattr(program, arguments.pop("request"))(**arguments)
        except Exception as error:  # the test gets the error, and the program continues
            response = {"raised": f"{type(error).__name__}: {error}"}
        print(RESPONSE_PREFIX + json.dumps(response), flush=True)
    for query in program.queries.values():
        query.stop()
    program.spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

"""Runs of a streaming query that writes to a server in the process of the test, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from aeron_spark.direct.archive_recordings import this_host
from aeron_spark.log.writing import Source
from aeron_spark.options import WriteOptions
from aeron_spark.spark import task_context
from aeron_spark.spark import writer as writing
from aeron_spark.spark.writer import WriteTask, WrittenRows
from aeron_spark.stream_client.server_writer import ServerWriter
from aeron_spark.wire.stream_requests import Transaction
from tests.unit.stream_client.joined import World

QUERY, SERVER = "the query", "127.0.0.1:20121"
KEY = "aeron-spark:AS4Oa1S2Mu0vMDh7uNmzIoNS3Y9cElKNIYjhuLBwKQk"


class Run:
    """One run of a query: its tasks, in one process, and the process that commits for Spark."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, name: str = "run-1") -> None:
        self.session = world.stream_session()
        self.writer = ServerWriter({SERVER: self.session}, "s")
        self._name = name
        self._monkeypatch = monkeypatch
        given = {"server": SERVER, "stream": "s", "serverkey": KEY, "payload": "raw"}
        options = WriteOptions.parse(given, streaming=True)
        self._task = WriteTask(options, options.route, "raw", "this write", this_host())

    def transaction(self, batch: int) -> Transaction:
        return Transaction(QUERY, self._name, batch, producer=QUERY)

    def run_task(self, batch: int, task: int, values: Sequence[bytes] = ()) -> WrittenRows:
        """Write the rows of a task, by default one that names the micro-batch and the task."""
        appender = self.writer.begin(self.transaction(batch), Source(QUERY, batch, task), "raw")
        try:
            appender.append(rows(*values or [row(batch, task)]))
            parts = tuple(appender.finish())
        except BaseException:
            appender.discard()
            raise
        return WrittenRows(self.transaction(batch), SERVER, parts, appender.rows, appender.committed)

    def run_sink_task(self, batch: int, batches: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write the rows of a task as the sink does."""
        self._open_own_writer()
        properties = {task_context.QUERY: QUERY, task_context.RUN: self._name, task_context.BATCH: str(batch)}
        self._monkeypatch.setattr(task_context, "local_property", properties.get)
        self._monkeypatch.setattr(writing, "local_property", properties.get)
        return self._task.write(batches)

    def commit(self, messages: Sequence[WrittenRows]) -> None:
        """Commit as the sink does."""
        self._open_own_writer()
        self._task.commit(messages)

    def _open_own_writer(self) -> None:
        @contextmanager
        def open_writer(*_: Any) -> Iterator[ServerWriter]:
            yield ServerWriter({SERVER: self.session}, "s")

        self._monkeypatch.setattr(writing, "open_writer", open_writer)

    def write(self, batch: int, tasks: int = 2) -> None:
        """Run a micro-batch without a failure."""
        self.commit([self.run_task(batch, task) for task in range(tasks)])


def row(batch: int, task: int) -> bytes:
    return b"%d of task %d" % (batch, task)


def batches(*numbers: int) -> list[list[bytes]]:
    """The rows of these micro-batches: each of the two tasks writes to its partition."""
    return [[row(batch, task) for batch in numbers] for task in (0, 1)]


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary())})

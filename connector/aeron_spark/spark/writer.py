"""Writing: what a task does with the Arrow batches Spark hands it, for batch and stream."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from aeron_spark.direct.appender import DirectAppender
from aeron_spark.direct.archives import this_host
from aeron_spark.errors import SetupError
from aeron_spark.options import DirectRoute, ServerRoute, WriteOptions
from aeron_spark.spark.row_values import payload_of, values_of
from aeron_spark.spark.staging import StagingTask
from aeron_spark.spark.task_context import check, source_of, with_servers


@dataclass
class Written(WriterCommitMessage):
    """What a task wrote."""

    rows: int
    dropped: int


@dataclass(frozen=True)
class PublishingTask:
    """What a task needs to publish its rows directly, wherever it runs: at least once."""

    options: WriteOptions
    way: DirectRoute
    payload: str
    batch_writer: str  # the writer's id of a batch, unless it is named
    planned_on: str

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Publish all rows, and return once they are acknowledged."""
        options = self.options
        if self.way.embedded and options.ack == "archive" and self.planned_on != this_host():
            raise SetupError(
                "archive=embedded is one machine's own archive, and this task runs on another machine than the driver",
                remedy="Name an archive that all hosts reach with option 'archive', or set ack=driver.",
            )
        appender: DirectAppender | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            appender = appender or DirectAppender(options, source_of(options, self.batch_writer))
            if self.payload == "arrow":
                appender.arrow(batch)
            else:
                _append_values(appender, batch, framed=self.payload == "framed")
        if appender is None:
            return Written(0, 0)
        appender.finish()
        return Written(appender.rows, appender.dropped)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Keep nothing: what was published is published."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Keep nothing: what was published cannot be taken back, and a retry publishes it again."""


class AeronBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame: directly at least once, through a server once, all of it or nothing."""

    def __init__(self, task: PublishingTask | StagingTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as PySpark's own
        """Write a task's rows."""
        return self._task.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        self._task.commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """One task failed for good."""
        self._task.abort(messages)


class AeronStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query: directly at least once, through a server exactly once."""

    def __init__(self, task: PublishingTask | StagingTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as PySpark's own
        """Write a task's rows."""
        return self._task.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of a micro-batch are done."""
        self._task.commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """A micro-batch failed, or its commit did."""
        self._task.abort(messages)


def write_task(options: WriteOptions, schema: StructType) -> PublishingTask | StagingTask:
    """Check the columns against the payload, and the keys, before anything runs."""
    payload, way, unique = payload_of(options, schema), with_servers(options.route), str(uuid.uuid4())
    check(way)
    if isinstance(way, ServerRoute):
        return StagingTask(options, way, payload, unique)
    return PublishingTask(options, way, payload, f"batch-{unique}", this_host())


def _append_values(appender: DirectAppender, batch: pa.RecordBatch, *, framed: bool) -> None:
    append = appender.framed if framed else appender.raw
    for at, part in _by_stream(appender, batch):
        values, reserved = values_of(part)
        append(values, reserved, at)


def _by_stream(
    appender: DirectAppender, batch: pa.RecordBatch
) -> Iterator[tuple[tuple[str, int] | None, pa.RecordBatch]]:
    """Divide a batch by the streams its rows name, keeping the order within each; null means the option's."""
    channels: Any
    streams: Any
    way = appender.way
    names = batch.schema.names
    if "channel" not in names and "streamId" not in names:
        yield None, batch
        return
    rows = batch.num_rows
    channels = batch.column("channel") if "channel" in names else pa.nulls(rows, pa.string())
    streams = batch.column("streamId") if "streamId" in names else pa.nulls(rows, pa.int32())
    channels = pc.fill_null(channels, way.channel)
    streams = pc.fill_null(streams.cast(pa.int64()), way.stream_id)
    keys = pa.table({"channel": channels, "stream": streams})
    for key in keys.group_by(["channel", "stream"], use_threads=False).aggregate([]).to_pylist():
        mine = pc.and_(pc.equal(channels, key["channel"]), pc.equal(streams, key["stream"]))
        yield (key["channel"], int(key["stream"])), batch.filter(mine)

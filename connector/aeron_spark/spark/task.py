"""What Spark says of the task that runs here: its partition, its query, its run and its micro-batch."""

from __future__ import annotations

from typing import Final

from pyspark import TaskContext

from aeron_spark.log.appender import Source
from aeron_spark.options import WriteOptions

QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
RUN: Final = "spark.jobGroup.id"  # a streaming query runs its jobs in a group named by its run


def partition_of_task() -> int | None:
    """Return the number of this task's partition, None where no task runs here."""
    context = TaskContext.get()
    return None if context is None else context.partitionId()


def told(name: str) -> str | None:
    """Return what Spark says of this task, such as ``QUERY``."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def source_of(options: WriteOptions, batch_writer: str) -> Source:
    """Return who writes, as it stands in the metadata; ``batch_writer`` is for a batch that nobody named."""
    partition, batch = partition_of_task(), told(BATCH)
    writer = options.writer_id or told(QUERY) or batch_writer
    return Source(writer, -1 if batch is None else int(batch), -1 if partition is None else partition)

"""Reading: the readers Spark drives, batch and stream, and what a task does with its ranges.

Spark builds readers several times and pickles them, so their constructors only keep what the options say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from aeron_spark.direct.archives import this_host
from aeron_spark.errors import SetupError
from aeron_spark.log.api import Log, Range
from aeron_spark.log.decoding import RowDecoder, of_recording, publish_times, read_range
from aeron_spark.log.offsets import Offset
from aeron_spark.log.planning import partition_by_key, partition_by_size
from aeron_spark.log.query import QueryPlanner
from aeron_spark.log_factory import log_of, open_log
from aeron_spark.options import DirectRoute, ReadOptions, ServerRoute
from aeron_spark.pool import POOL
from aeron_spark.spark.schema import arrow_schema
from aeron_spark.spark.task_context import partition_of_task, resolve_key_files, with_servers


class RangePartition(InputPartition):
    """A task's share: ranges of one or several recordings, and the way to them."""

    def __init__(self, ranges: tuple[Range, ...], way: DirectRoute | ServerRoute) -> None:
        self.ranges = ranges
        self.way = way


@dataclass(frozen=True)
class Task:
    """What a task needs to read its ranges, wherever it runs."""

    options: ReadOptions
    payload: str
    schema: StructType
    planned_on: str  # the host of the query's driver

    @property
    def framed(self) -> bool:
        """Whether the stream is in the wire format."""
        return self.payload != "raw"

    def stream(self) -> QueryPlanner:
        """Return the planning side of the stream."""
        times = self.options.timestamp_from
        return QueryPlanner(
            self.options,
            log_here,
            framed=self.framed,
            times=None if times is None else lambda rows: publish_times(rows, times),
        )

    def read(self, share: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition as Spark expects them."""
        # Spark makes a partition of its own where there is nothing to read.
        if not isinstance(share, RangePartition) or not share.ranges:
            return
        way = resolve_key_files(share.way)
        if isinstance(way, DirectRoute) and way.embedded and self.planned_on != this_host():
            raise SetupError(
                "archive=embedded is one machine's own archive, and this task runs on another machine than the driver",
                remedy="Name an archive that all hosts reach: option 'archive' with its control channel, "
                "such as 'aeron:udp?endpoint=archive-host:8010'.",
            )
        options, schema = self.options, arrow_schema(self.schema)
        with POOL.borrow(way, partition_of_task()) as sessions:
            log = open_log(
                way,
                framed=self.framed,
                idle_timeout=options.idle_timeout,
                read_path=options.read_path,
                sessions=sessions,
            )
            for wanted in share.ranges:
                yield from self._range(log, schema, wanted)

    def _range(self, log: Log, schema: pa.Schema, wanted: Range) -> Iterator[pa.RecordBatch]:
        maker = RowDecoder(schema, log.state(wanted.key), self.options.timestamp_from)
        if not self.framed:
            for rows in log.read(wanted):
                yield maker.raw(rows)
            return
        with of_recording(wanted.key):
            for found in read_range(log, wanted):
                # A stream of Arrow batches with one column named like ours looks framed until its groups are seen.
                if self.payload == "arrow" or (self.options.payload == "auto" and maker.is_arrow(found)):
                    yield from maker.arrow(found)
                else:
                    yield maker.framed(found)


def log_here(options: ReadOptions, framed: bool) -> Log:
    """Return the log that planning uses, with the keys of this machine."""
    return log_of(replace(options, route=resolve_key_files(with_servers(options.route))), framed)


class AeronBatchReader(DataSourceReader):
    """Reads what is recorded between two offsets, once."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def partitions(self) -> list[InputPartition]:
        """Plan the whole range."""
        stream = self._task.stream()
        return plan_partitions(self._task, stream, stream.whole())

    def read(self, partition_by_size: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition."""
        return self._task.read(partition_by_size)


class AeronStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream, micro-batch by micro-batch; its offsets are positions in recordings."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._planner: QueryPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_task": self._task, "_planner": None}

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins."""
        return self._stream().initial().to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Say that batches are limited; the limits themselves stand in the options."""
        limits = self._task.options.limits
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadAllAvailable() if limits.max_rows is None else ReadMaxRows(limits.max_rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends; ``start``, to the letter, where there is nothing new."""
        begun = Offset.parse(start)
        end = self._stream().latest(begun, limited=not isinstance(limit, ReadAllAvailable))
        return start if end is begun else end.to_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return how far the recordings reach, for the query's progress."""
        ends = self._stream().ends()
        return {"recordings": ends, "v": 1} if ends else None

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query."""
        self._stream().prepare_available_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan the batch between two offsets."""
        stream = self._stream()
        return plan_partitions(self._task, stream, stream.between(Offset.parse(start), Offset.parse(end)))

    def read(self, partition_by_size: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition."""
        return self._task.read(partition_by_size)

    def commit(self, end: dict[str, Any]) -> None:
        """Keep nothing: the checkpoint is the only truth."""

    def stop(self) -> None:
        """Do nothing: Spark does not promise to call this; the driver is told when the process ends."""

    def _stream(self) -> QueryPlanner:
        if self._planner is None:
            self._planner = self._task.stream()
        return self._planner


def plan_partitions(task: Task, stream: QueryPlanner, ranges: list[Range]) -> list[InputPartition]:
    """Lay ranges out in the partitions of a batch.

    Each partition of a server's stream has a task of its own, the same in every batch, so that a copy of the stream has
    its rows in the same partitions and order; ``minPartitions`` asks for something else.
    """
    way = with_servers(task.options.route)
    if isinstance(way, ServerRoute) and task.options.min_partitions is None:
        return [RangePartition(part, way) for part in partition_by_key(ranges, stream.keys())]
    return [RangePartition(part, way) for part in partition_by_size(ranges, task.options.min_partitions)]

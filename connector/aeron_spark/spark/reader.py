"""Reads a stream: batch and streaming readers, and a batch reader that takes filters.

Spark creates and pickles readers several times, so their constructors only store the options.

``pushdown=true`` chooses a class of its own, because Spark's default configuration refuses a reader with
``pushFilters``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from aeron_spark.aeron import jvm
from aeron_spark.aeron.recording import ReplaysAhead, Span
from aeron_spark.direct.archive_recordings import this_host
from aeron_spark.errors import SetupError
from aeron_spark.log.api import Log, Range, split_key
from aeron_spark.log.available import state_for
from aeron_spark.log.decoding import METADATA_PREFIX, RowDecoder, of_recording, publish_times, read_range, refuse_framed
from aeron_spark.log.offsets import Offset
from aeron_spark.log.planning import partition_by_key, partition_by_size
from aeron_spark.log.query import QueryPlanner
from aeron_spark.log.restarts import restartable
from aeron_spark.log_factory import log_of, open_log
from aeron_spark.options import DirectRoute, ReadOptions, ServerRoute, WantedOffsets
from aeron_spark.options.values import Moment
from aeron_spark.pool import POOL
from aeron_spark.process import sleep_with_parent
from aeron_spark.spark.pyspark_api import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    needs_newer,
)
from aeron_spark.spark.row_values import arrow_schema
from aeron_spark.spark.shown_errors import short_errors, short_errors_of_rows
from aeron_spark.spark.task_context import partition_of_task, resolve_key_files, with_servers
from aeron_spark.transport.channel import FRAME_ALIGNMENT

if TYPE_CHECKING:
    from aeron_spark.sbe.table import DecodeTable


LOG: Final = logging.getLogger("aeron_spark.spark")


class RangePartition(InputPartition):
    """The ranges of a task, of one or several recordings, and their route."""

    def __init__(self, ranges: tuple[Range, ...], route: DirectRoute | ServerRoute) -> None:
        self.ranges = ranges
        self.route = route


@dataclass(frozen=True)
class Task:
    """The data that a task needs to read its ranges on any machine."""

    options: ReadOptions
    payload: str  # of the stream: with payload=sbe that of the values which are SBE messages
    schema: StructType
    planned_on: str  # the host of the query's driver
    table: DecodeTable | None = None  # with payload=sbe
    end: WantedOffsets | Moment | None = None  # of a query with Trigger.AvailableNow; None: the current one

    @property
    def framed(self) -> bool:
        """Whether the stream is in the wire format."""
        return self.payload != "raw"

    def stream(self) -> QueryPlanner:
        times = self.options.timestamp_from
        log = restartable(
            lambda: open_planning_log(self.options, self.framed),
            self.options.route,
            is_running=False,
            sleep=sleep_with_parent(),  # Spark does not end a planner that waits for an archive
        )

        def open_again(options: ReadOptions, framed: bool) -> Log:
            log.renew()
            return log

        return QueryPlanner(
            self.options,
            open_again,
            framed=self.framed,
            times=None if times is None else lambda rows: publish_times(rows, times),
            settled=self.payload if self.options.payload in ("auto", "sbe") else None,
        )

    @short_errors_of_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a Spark partition."""
        # Spark creates an empty partition if there is nothing to read.
        if not isinstance(partition, RangePartition) or not partition.ranges:
            return
        route = resolve_key_files(partition.route)
        if isinstance(route, DirectRoute) and route.embedded and self.planned_on != this_host():
            raise SetupError(
                "archive=embedded is the archive of one machine, but this task runs on another machine than the driver",
                remedy="Name an archive that all hosts can reach: option 'archive' with its control channel, "
                "such as 'aeron:udp?endpoint=archive-host:8010'.",
            )
        options, schema = self.options, arrow_schema(self.schema)
        with POOL.borrow(route, partition_of_task()) as sessions, closing(self._replays(partition)) as ahead:
            log = restartable(
                lambda: open_log(
                    route,
                    framed=self.framed,
                    idle_timeout=options.idle_timeout,
                    read_path=options.read_path,
                    fail_on_data_loss=options.fail_on_data_loss,
                    sessions=sessions,
                    ahead=ahead,
                ),
                route,
                is_running=True,  # the planner has reached the archive
            )
            if isinstance(route, DirectRoute) and len(partition.ranges) > 1:
                log.states()  # one list of all recordings, instead of a search of the catalog for each
            for wanted in partition.ranges:
                yield from self._range(log, schema, wanted)

    def _replays(self, partition: RangePartition) -> ReplaysAhead:
        """Return the ranges of a Spark partition that its archives may replay; through a server there are none."""
        if isinstance(partition.route, ServerRoute):
            return ReplaysAhead()
        return ReplaysAhead(
            Span(*split_key(one.key), one.start, one.overrun if self.framed else one.end) for one in partition.ranges
        )

    def _range(self, log: Log, schema: pa.Schema, wanted: Range) -> Iterator[pa.RecordBatch]:
        state = state_for(log, wanted, fail_on_data_loss=self.options.fail_on_data_loss)
        if state is None:
            return
        options = self.options

        def decoder_of(columns: pa.Schema) -> RowDecoder:
            return RowDecoder(columns, state, options.timestamp_from, options.route.stream_column)

        if self.table is not None:
            from aeron_spark.log.sbe_rows import read_sbe

            yield from read_sbe(log, wanted, schema, self.table, decoder_of)
            return
        decoder = decoder_of(schema)
        if not self.framed:
            for rows in log.read(wanted):
                if self.options.payload == "auto":
                    refuse_framed(rows, wanted.key)
                yield decoder.raw(rows)
            return
        with of_recording(wanted.key):
            for found in read_range(log, wanted, decoder.fields):
                # The schema of Arrow batches with one column 'value' is that of framed values: check each group.
                if self.payload == "arrow" or (self.options.payload == "auto" and decoder.is_arrow(found)):
                    yield from decoder.arrow(found)
                else:
                    yield decoder.framed(found)


def open_planning_log(options: ReadOptions, framed: bool) -> Log:
    """Return the log for planning, with the key files of this machine."""
    return log_of(replace(options, route=resolve_key_files(with_servers(options.route))), framed)


class AeronBatchReader(DataSourceReader):
    """Reads the recorded rows between two offsets, once."""

    def __init__(self, task: Task) -> None:
        self._task = task

    @short_errors
    def partitions(self) -> list[InputPartition]:
        """Plan the ranges of the query."""
        stream = self._task.stream()
        return plan_partitions(self._task, stream, stream.whole())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition."""
        return self._task.read(partition)


class AeronStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream in micro-batches; its offsets are positions of recordings."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._planner: QueryPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_task": self._task, "_planner": None}

    @short_errors
    def initialOffset(self) -> dict[str, Any]:
        """Return the first offset of a new query."""
        return self._stream().initial().to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit if the options have one; the options also have its value."""
        limits = self._task.options.limits
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadAllAvailable() if limits.max_rows is None else ReadMaxRows(limits.max_rows)

    @short_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch; ``start`` itself, unchanged, if there is nothing new."""
        start_offset = Offset.parse(start)
        end = self._stream().latest(start_offset, limited=not isinstance(limit, ReadAllAvailable))
        return start if end is start_offset else end.to_dict()

    @short_errors
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the recordings, the stream and the lag, for the query's progress.

        The lag remains after the batch that was planned last. Spark has no other place for it: the metrics of a source
        in Python are always empty, and its description is the name of Spark's own class.
        """
        stream = self._stream()
        ends, lag = stream.ends(), stream.lag()
        if not ends:
            return None
        report: dict[str, Any] = {} if lag is None else {"lag": lag.to_dict()}
        return report | {"recordings": ends, "stream": stream.log.stream.to_dict(), "v": 1}

    @short_errors
    def prepareForTriggerAvailableNow(self) -> None:
        """Store the end of the query: the current ends, or that of the task."""
        self._stream().prepare_available_now(self._task.end)

    @short_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan the batch between two offsets."""
        stream = self._stream()
        return plan_partitions(self._task, stream, stream.between(Offset.parse(start), Offset.parse(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition."""
        return self._task.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: only the checkpoint stores the progress."""

    def stop(self) -> None:
        """Do nothing: Spark may not call this; the media driver notices the end of the process."""

    def _stream(self) -> QueryPlanner:
        if self._planner is None:
            if isinstance(self._task.options.route, ServerRoute) or self._task.options.limits.max_rows is None:
                # Spark starts a process only for these calls: its JVM answers a few, unless it counts rows itself.
                jvm.expect_short_use()
            self._planner = self._task.stream()
            self._warn_of_null_times()
        return self._planner

    def _warn_of_null_times(self) -> None:
        """Log that a column of times is NULL. Spark does not tell a source whether the query has a watermark on it."""
        name = "timestamp" if self._task.table is None else f"{METADATA_PREFIX}timestamp"
        options = self._task.options
        if self._task.payload == "raw" and options.timestamp_from is None and name in self._task.schema.fieldNames():
            LOG.warning(
                "the column %s of %s is NULL, because raw messages have no publish time: a watermark on it lets no row "
                "through. Set option 'timestampFrom' if the messages have one, or take the watermark on another column",
                name,
                options.route.label,
            )


class EarlierStreamReader(AeronStreamReader):
    """Reads a stream in micro-batches with Spark 4.0 or 4.1, which request their ends without a start or a limit.

    Spark passes each start in another call, before ``latestOffset`` or, for a new query, after it:

        initialOffset()           a new query
        partitions(at, at)        a query that continues at a checkpoint, with the last offset in it
        partitions(start, end)    a batch: its end is the start of the next one

    With ``Trigger.AvailableNow`` these versions run one micro-batch, and they do not tell a source the trigger. With a
    limit such a query would end before the end of its stream, so options that set one are refused, and there is no
    default.
    """

    def __init__(self, task: Task) -> None:
        _refuse_limits(task.options)
        super().__init__(task)
        self._first: dict[str, Any] | None = None
        self._read: dict[str, Any] | None = None  # the end of the last batch, or the offset of the checkpoint

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_first": None, "_read": None}

    @short_errors
    def initialOffset(self) -> dict[str, Any]:
        """Return the first offset of a new query, the same for each call: ``latestOffset`` needs it before Spark.

        Spark also calls this to repeat the first batch of a query, whose end it has told before.
        """
        if self._first is None:
            self._first = self._stream().initial().to_dict()
        return self._first

    @short_errors
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # as these versions of Spark call it
        """Return the end of the next batch; its start, unchanged, if there is nothing new."""
        read = self.initialOffset() if self._read is None else self._read
        start = Offset.parse(read)
        end = self._stream().latest(start, limited=False)
        return read if end is start else end.to_dict()

    @short_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan the batch between two offsets; equal ones only say where the query continues."""
        self._read = end
        return [] if start == end else super().partitions(start, end)

    def _stream(self) -> QueryPlanner:
        if self._planner is None and self._task.end is not None:  # only the trigger availableNow has an end
            super()._stream().prepare_available_now(self._task.end)
        return super()._stream()


def _refuse_limits(options: ReadOptions) -> None:
    """Raise SetupError for an option that limits the batches; the defaults of these options do not apply."""
    given = {
        "maxBytesPerTrigger": options.max_bytes_per_trigger,
        "maxRowsPerTrigger": options.max_rows_per_trigger,
        "minBytesPerTrigger": options.min_bytes_per_trigger,
    }
    for name, value in given.items():
        if value is not None:
            raise needs_newer(
                f"option '{name}' of a streaming query",
                "4.2",
                instead="Or remove the option: each micro-batch then reads everything that is there.",
            )


def plan_partitions(task: Task, stream: QueryPlanner, ranges: list[Range]) -> list[InputPartition]:
    """Distribute ranges to the Spark partitions of a batch.

    Each partition of a server's stream has a separate task, the same in each batch, so that a copy of the stream has
    its rows in the same partitions and order. ``minPartitions``, and several streams, which may join, override this.
    """
    route = with_servers(task.options.route)
    if isinstance(route, ServerRoute) and task.options.min_partitions is None and not route.several:
        return [RangePartition(part, route) for part in partition_by_key(ranges, stream.keys())]
    return [RangePartition(part, route) for part in partition_by_size(ranges, task.options.min_partitions)]


class FilteringBatchReader(AeronBatchReader):
    """Reads only the positions and Aeron sessions that match the filters; Spark still applies all filters."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._start: int | None = None
        self._end: int | None = None
        self._sessions: set[int] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Derive bounds from ``filters``, and return all filters, because the bounds are coarser than rows."""
        for one in filters:
            column: tuple[str, ...] = getattr(one, "attribute", ())
            name = column[0].removeprefix(METADATA_PREFIX) if len(column) == 1 else ""
            if name == "position":
                self._bound_position(one)
            elif name == "sessionId":
                self._bound_sessions(one)
        return filters

    @short_errors
    def partitions(self) -> list[InputPartition]:
        """Plan the ranges within the bounds."""
        stream = self._task.stream()
        ranges = stream.whole(
            start=self._start,
            end=self._end,
            sessions=None if self._sessions is None else sorted(self._sessions),
        )
        return plan_partitions(self._task, stream, ranges)

    def _bound_position(self, one: Filter) -> None:
        low: int | None
        high: int | None
        match one:
            case EqualTo(_, int(value)):
                low, high = value, value + FRAME_ALIGNMENT
            case GreaterThan(_, int(value)) | GreaterThanOrEqual(_, int(value)):
                low, high = value, None
            case LessThan(_, int(value)):
                low, high = None, value
            case LessThanOrEqual(_, int(value)):
                low, high = None, value + FRAME_ALIGNMENT
            case _:
                return
        if low is not None:
            self._start = max(low, self._start or 0)
        if high is not None:
            self._end = high if self._end is None else min(high, self._end)

    def _bound_sessions(self, one: Filter) -> None:
        match one:
            case EqualTo(_, int(value)):
                found = {value}
            case In(_, values):
                found = {value for value in values if isinstance(value, int)}
            case _:
                return
        self._sessions = found if self._sessions is None else self._sessions & found

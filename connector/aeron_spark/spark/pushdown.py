"""Derives bounds of a batch from its filters (``pushdown=true``).

A separate class, because Spark's default configuration refuses a reader with ``pushFilters``.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from aeron_spark.log.api import FRAME_ALIGNMENT
from aeron_spark.log.columns import METADATA_PREFIX
from aeron_spark.spark.reader import AeronBatchReader, Task, plan_partitions


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

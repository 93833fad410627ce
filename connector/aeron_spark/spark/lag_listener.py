"""Reports the backlog of a query: the bytes of each recording that are recorded but not processed yet.

    from aeron_spark.spark import LagListener

    lag = LagListener()
    spark.streams.addListener(lag)
    ...
    lag.of("flights").total        # by the query's name or id

Spark reports after each micro-batch; an idle query keeps its last values. They come from the query's progress
(``sources[].latestOffset`` minus ``endOffset``), without requests to an archive.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from aeron_spark.errors import DataFormatError
from aeron_spark.log.offsets import Offset


@dataclass(frozen=True, slots=True)
class QueryLag:
    """The backlog of one query after one micro-batch."""

    query_id: str
    name: str | None
    batch_id: int
    timestamp: str  # of the micro-batch's start, ISO, UTC
    recordings: Mapping[str, int]  # bytes, by ``archive/recording id``; finished recordings too

    @property
    def total(self) -> int:
        """Bytes over all recordings."""
        return sum(self.recordings.values())


class LagListener(StreamingQueryListener):
    """Stores the last lag of each query that reads ``format("aeron")``, and passes each one to ``callback``.

    A recording that the query has not read yet counts from position 0. An incomplete message at the end of a stopped
    recording does not count. If two sources of one query read the same recording, the slower one counts. ``callback``
    runs on Spark's listener thread and must be short; Spark logs its errors.
    """

    def __init__(self, callback: Callable[[QueryLag], None] | None = None) -> None:
        self._callback = callback
        self._lock = threading.Lock()
        self._last: dict[str, QueryLag] = {}

    def of(self, query: str) -> QueryLag | None:
        """Return the last lag of a query by id, or by name (of the newest query with it); None before the first one."""
        with self._lock:
            found = self._last.get(query)
            if found is None:
                found = next((lag for lag in reversed(self._last.values()) if lag.name == query), None)
            return found

    def all(self) -> dict[str, QueryLag]:
        """Return the last lag of each query by id, also of queries that have ended."""
        with self._lock:
            return dict(self._last)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: the first values come with the first progress."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Store the lag of this progress."""
        lag = lag_of(event.progress)
        if lag is None:
            return
        with self._lock:
            self._last.pop(lag.query_id, None)  # the newest is the last one
            self._last[lag.query_id] = lag
        if self._callback is not None:
            self._callback(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: the values have not changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the last values remain."""


def lag_of(progress: StreamingQueryProgress) -> QueryLag | None:
    """Return the lag from a query's progress, such as ``query.lastProgress``; None without Aeron sources."""
    recordings: dict[str, int] = {}
    has_aeron = False
    for source in progress.sources:
        latest, end = _parsed(source.latestOffset), _offset(source.endOffset)
        if end is None:
            continue
        has_aeron = True
        for key, backlog in _backlogs(latest, end).items():
            recordings[key] = max(backlog, recordings.get(key, 0))
    if not has_aeron:
        return None
    return QueryLag(
        str(progress.id), progress.name, progress.batchId, progress.timestamp, dict(sorted(recordings.items()))
    )


def _backlogs(latest: Any, end: Offset) -> dict[str, int]:
    ends = latest.get("recordings") if isinstance(latest, dict) else None
    if not isinstance(ends, dict):
        return {}  # nothing is recorded yet
    found = {}
    for key, recorded in ends.items():
        position = end.position(key) or 0
        finished = end.done.get(key)
        if finished is not None and finished.seen == recorded:
            position = recorded  # the rest is an incomplete message
        found[key] = max(0, recorded - position)
    return found


def _offset(text: str | None) -> Offset | None:
    try:
        return Offset.parse(_parsed(text))
    except DataFormatError:
        return None  # an offset of another source


def _parsed(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except ValueError:
        return None

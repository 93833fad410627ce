"""How far behind a query is: bytes of the log that are recorded and not processed yet, of each recording.

    from aeron_spark.spark import LagListener

    lag = LagListener()
    spark.streams.addListener(lag)
    ...
    lag.of("flights").total        # by the query's name or id

Spark tells after each micro-batch; a query that is idle keeps its last figures. They come from the progress itself
(``sources[].latestOffset`` less ``endOffset``): nothing is asked of an archive, and a query can be watched from
anywhere its progress can.
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
    """How far one query was behind after one micro-batch."""

    query_id: str
    name: str | None
    batch_id: int
    timestamp: str  # of the micro-batch's beginning, ISO, UTC
    recordings: Mapping[str, int]  # bytes, by ``archive/recording id``; finished recordings too

    @property
    def total(self) -> int:
        """Bytes over all recordings."""
        return sum(self.recordings.values())


class LagListener(StreamingQueryListener):
    """Keeps the last lag of every query that reads ``format("aeron")``, and hands each one to ``callback``.

    A recording that the query has not begun to read counts from position 0; an unfinished message at the end of one
    that has stopped counts as nothing, until the recording is extended. Where two sources of one query read the same
    recording, the slower one counts. ``callback`` runs on Spark's listener thread: keep it short; what it raises is
    logged by Spark and stops nothing.
    """

    def __init__(self, callback: Callable[[QueryLag], None] | None = None) -> None:
        self._callback = callback
        self._lock = threading.Lock()
        self._last: dict[str, QueryLag] = {}

    def of(self, query: str) -> QueryLag | None:
        """Return the last lag of a query, by id or name (the newest query of that name), or None before the first."""
        with self._lock:
            found = self._last.get(query)
            if found is None:
                found = next((lag for lag in reversed(self._last.values()) if lag.name == query), None)
            return found

    def all(self) -> dict[str, QueryLag]:
        """Return the last lag of every query, by its id; a query that has ended keeps its last."""
        with self._lock:
            return dict(self._last)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: the first figures come with the first progress."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Keep the lag that this progress tells."""
        lag = lag_of(event.progress)
        if lag is None:
            return
        with self._lock:
            self._last.pop(lag.query_id, None)  # the newest stands last
            self._last[lag.query_id] = lag
        if self._callback is not None:
            self._callback(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: nothing new came since the last progress."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the last figures stay."""


def lag_of(progress: StreamingQueryProgress) -> QueryLag | None:
    """Return the lag in a query's progress (``query.lastProgress``, too), or None where no source of it is Aeron's."""
    recordings: dict[str, int] = {}
    ours = False
    for source in progress.sources:
        latest, end = _parsed(source.latestOffset), _offset(source.endOffset)
        if end is None:
            continue
        ours = True
        for key, behind in _behind(latest, end).items():
            recordings[key] = max(behind, recordings.get(key, 0))
    if not ours:
        return None
    return QueryLag(
        str(progress.id), progress.name, progress.batchId, progress.timestamp, dict(sorted(recordings.items()))
    )


def _behind(latest: Any, end: Offset) -> dict[str, int]:
    reached = latest.get("recordings") if isinstance(latest, dict) else None
    if not isinstance(reached, dict):
        return {}  # nothing is recorded yet
    found = {}
    for key, recorded in reached.items():
        position = end.position(key) or 0
        finished = end.done.get(key)
        if finished is not None and finished.seen == recorded:
            position = recorded  # only an unfinished message is left of it
        found[key] = max(0, recorded - position)
    return found


def _offset(text: str | None) -> Offset | None:
    try:
        return Offset.parse(_parsed(text))
    except DataFormatError:
        return None  # another source's


def _parsed(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except ValueError:
        return None

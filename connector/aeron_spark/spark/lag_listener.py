"""Reports the lag of a query: the bytes that are recorded but not processed yet, and how long they have waited.

    from aeron_spark.spark import LagListener

    lag = LagListener(prometheus=":9465")
    spark.streams.addListener(lag)
    ...
    lag.of("flights").total        # by the query's name or id

Spark reports after each micro-batch; an idle query keeps its last values. They come from the query's progress
(``sources[].latestOffset`` and ``endOffset``), without requests to an archive or a server.
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
    SourceProgress,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from aeron_spark.errors import DataFormatError
from aeron_spark.log.lag import unread_bytes
from aeron_spark.log.offsets import Offset
from aeron_spark.spark.lag_metrics import LagMetrics


@dataclass(frozen=True, slots=True)
class StreamLag:
    """The lag of one stream of a query, and the rows that the micro-batch read from it."""

    recordings: Mapping[str, int]  # unread bytes, by ``archive/recording id``; finished recordings too
    seconds: float | None  # since the oldest unread row was committed, by its server's clock; None on the direct route
    input_rows: int

    @property
    def total(self) -> int:
        """Bytes over all recordings."""
        return sum(self.recordings.values())


@dataclass(frozen=True, slots=True)
class QueryLag:
    """The lag of one query after one micro-batch; ``seconds`` as of the time at which Spark planned this batch."""

    query_id: str
    name: str | None
    batch_id: int
    timestamp: str  # of the micro-batch's start, ISO, UTC
    batch_seconds: float  # the duration of the micro-batch
    streams: Mapping[str, StreamLag]  # by the stream's name; on the direct route by its stream id and channel

    @property
    def recordings(self) -> dict[str, int]:
        """Unread bytes by ``archive/recording id``, of all streams."""
        found = {key: count for stream in self.streams.values() for key, count in stream.recordings.items()}
        return dict(sorted(found.items()))

    @property
    def total(self) -> int:
        """Bytes over all recordings."""
        return sum(self.recordings.values())

    @property
    def seconds(self) -> float | None:
        """The age of the oldest unread row of all streams; None if no stream has commit times."""
        return max((lag.seconds for lag in self.streams.values() if lag.seconds is not None), default=None)


class LagListener(StreamingQueryListener):
    """Stores the last lag of each query that reads ``format("aeron")``, and passes each one to ``callback``.

    With ``prometheus``, an address such as ``":9465"`` (then 127.0.0.1) or ``"0.0.0.0:9465"``, it also publishes the
    lags for Prometheus until :meth:`close`, or until the process ends. Every process that can connect to the address
    can read them. This needs the extra ``server`` of the package.

    A recording that the query has not read yet counts from position 0. An incomplete message at the end of a stopped
    recording does not count. If two sources of one query read the same recording, the slower one counts. ``callback``
    runs on Spark's listener thread and must be short; Spark logs its errors.

    Raises OptionError for an invalid address, SetupError without the package prometheus_client, and InUseError if
    another program listens at the address.
    """

    def __init__(self, callback: Callable[[QueryLag], None] | None = None, *, prometheus: str = "") -> None:
        self._callback = callback
        self._lock = threading.Lock()
        self._last: dict[str, QueryLag] = {}
        self._metrics = LagMetrics(prometheus) if prometheus else None

    @property
    def metrics_address(self) -> str:
        """The ``host:port`` at which Prometheus can read the metrics; "" without metrics."""
        return "" if self._metrics is None else self._metrics.address

    def close(self) -> None:
        """End the publication of metrics, and its thread. The lags remain. A second call does nothing."""
        if self._metrics is not None:
            self._metrics.close()

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
        """Store and publish the lag of this progress."""
        lag = lag_of(event.progress)
        if lag is None:
            return
        with self._lock:
            self._last.pop(lag.query_id, None)  # the newest is the last one
            self._last[lag.query_id] = lag
        if self._metrics is not None:
            for stream, of_stream in lag.streams.items():
                self._metrics.publish(
                    lag.query_id, lag.name or lag.query_id, stream, lag_bytes=of_stream.total,
                    lag_seconds=of_stream.seconds, batch_seconds=lag.batch_seconds, input_rows=of_stream.input_rows,
                )  # fmt: skip
        if self._callback is not None:
            self._callback(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: the values have not changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Remove the query from the metrics: its last values would look like those of a running query."""
        if self._metrics is not None:
            self._metrics.remove(str(event.id))


def lag_of(progress: StreamingQueryProgress) -> QueryLag | None:
    """Return the lag from a query's progress, such as ``query.lastProgress``; None without Aeron sources."""
    streams: dict[str, StreamLag] = {}
    for source in progress.sources:
        end = _offset(source.endOffset)
        if end is None:
            continue
        stream = "unknown" if end.stream is None else end.stream.title
        lag = _source_lag(source, end)
        streams[stream] = _joined(streams[stream], lag) if stream in streams else lag
    if not streams:
        return None
    batch_seconds = progress.batchDuration / 1_000
    return QueryLag(str(progress.id), progress.name, progress.batchId, progress.timestamp, batch_seconds, streams)


def _source_lag(source: SourceProgress, end: Offset) -> StreamLag:
    latest = _parsed(source.latestOffset)
    report = latest if isinstance(latest, dict) else {}  # nothing is recorded yet
    ends, lag = report.get("recordings"), report.get("lag")
    seconds = lag.get("seconds") if isinstance(lag, dict) else None
    unread = unread_bytes(ends, end) if isinstance(ends, dict) else {}
    return StreamLag(dict(sorted(unread.items())), seconds, source.numInputRows)


def _joined(one: StreamLag, other: StreamLag) -> StreamLag:
    """Return the lag of a stream that two sources of a query read: of each recording, the slower source counts."""
    recordings = dict(one.recordings)
    for key, unread in other.recordings.items():
        recordings[key] = max(unread, recordings.get(key, 0))
    known = [seconds for seconds in (one.seconds, other.seconds) if seconds is not None]
    return StreamLag(recordings, max(known, default=None), one.input_rows + other.input_rows)


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

"""Measures how far a query is behind its stream: a listener, and metrics for Prometheus.

    from aeron_spark.spark import LagListener

    lag = LagListener(prometheus=":9465")
    spark.streams.addListener(lag)
    ...
    lag.of("flights").total        # by the query's name or id

Spark reports after each micro-batch; an idle query keeps its last values. They come from the query's progress
(``sources[].latestOffset`` and ``endOffset``), without requests to an archive or a server.
"""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from aeron_spark.errors import DataFormatError, InUseError, OptionError, SetupError
from aeron_spark.log.offsets import Offset
from aeron_spark.log.query import unread_bytes
from aeron_spark.process import ExitHook
from aeron_spark.spark.pyspark_api import HAS_READ_LIMITS, needs_newer
from aeron_spark.transport.addresses import HostPort

LABELS: Final = ("query", "stream")
END_TIMEOUT_S: Final = 5.0  # of the HTTP server's thread, which checks each 0.5 s whether it should end


class LagMetrics:
    """The metrics ``aeron_spark_query_...``, which one HTTP server publishes at ``address``.

    It has a separate registry, so the program's other metrics are not published here. Raises OptionError for an
    invalid address, SetupError without the package prometheus_client or without the address on this machine, and
    InUseError if another program listens at the address. One thread at a time may publish and remove values.
    """

    def __init__(self, address: str) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise SetupError(
                "LagListener(prometheus=...) needs the Python package prometheus_client, which is not installed",
                remedy="Install it with: pip install 'aeron-spark[server]'",
            ) from None
        wanted = _parsed_address(address)
        registry = prometheus_client.CollectorRegistry()
        prefix = "aeron_spark_query"
        self._bytes = prometheus_client.Gauge(
            f"{prefix}_lag_bytes", "Recorded bytes that the query has not read.", LABELS, registry=registry
        )
        self._seconds = prometheus_client.Gauge(
            f"{prefix}_lag_seconds",
            "Age of the oldest committed row that the query has not read. Not on the direct route.",
            LABELS,
            registry=registry,
        )
        self._batch_seconds = prometheus_client.Gauge(
            f"{prefix}_batch_duration_seconds", "Duration of the last micro-batch.", LABELS, registry=registry
        )
        self._rows = prometheus_client.Counter(
            f"{prefix}_input_rows", "Rows that the query has read.", LABELS, registry=registry
        )
        self._streams: dict[str, set[tuple[str, str]]] = {}  # by id of the query: its pairs of query and stream
        try:
            self._server, self._thread = prometheus_client.start_http_server(wanted.port, wanted.host, registry)
        except OSError as error:
            raise _cannot_listen(wanted, error) from None
        self.address: Final = str(HostPort(wanted.host, self._server.server_port))
        self._hook = ExitHook(self.close)

    def publish(self, lag: QueryLag) -> None:
        """Publish the values of a query after a micro-batch."""
        query = lag.name or lag.query_id
        published = self._streams.setdefault(lag.query_id, set())
        # a source that a stream joined has another name
        stale = published - {(query, stream) for stream in lag.streams}
        self._remove(stale)
        published -= stale
        for stream, found in lag.streams.items():
            published.add((query, stream))
            self._bytes.labels(query, stream).set(found.total)
            if found.seconds is not None:
                self._seconds.labels(query, stream).set(found.seconds)
            self._batch_seconds.labels(query, stream).set(lag.batch_seconds)
            self._rows.labels(query, stream).inc(found.input_rows)

    def remove(self, query_id: str) -> None:
        """Remove the values of a query; does nothing for an unknown one."""
        self._remove(self._streams.pop(query_id, set()))

    def _remove(self, published: set[tuple[str, str]]) -> None:
        for labels in published:
            for metric in (self._bytes, self._seconds, self._batch_seconds, self._rows):
                metric.remove(*labels)

    def close(self) -> None:
        """End the HTTP server and its thread. A second call does nothing."""
        self._hook.cancel()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(END_TIMEOUT_S)
            self._server.server_close()


def _parsed_address(address: str) -> HostPort:
    try:
        return HostPort.parse(f"127.0.0.1{address}" if address.startswith(":") else address)
    except ValueError as error:
        raise OptionError(
            f"the address {address!r} for Prometheus {error}",
            remedy="Give host:port; ':9465' means port 9465 of this machine's loopback address.",
        ) from None


def _cannot_listen(address: HostPort, error: OSError) -> InUseError | SetupError:
    if error.errno == errno.EADDRINUSE:
        return InUseError(
            f"cannot listen on {address}: the address is in use",
            remedy="Stop the program that has it, or choose another port",
        )
    return SetupError(f"cannot listen on {address}: {error}", remedy="Give an address of this machine, or ':9465'.")


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
    # By the stream's name; on the direct route by its stream id and channel. Several streams that one source reads are
    # one entry, with all names; the keys of its recordings have the stream.
    streams: Mapping[str, StreamLag]

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

    Raises OptionError for an invalid address, SetupError without the package prometheus_client or with a Spark before
    4.2, whose progress has no lag, and InUseError if another program listens at the address.
    """

    def __init__(self, callback: Callable[[QueryLag], None] | None = None, *, prometheus: str = "") -> None:
        if not HAS_READ_LIMITS:
            raise needs_newer("LagListener", "4.2", instead="`aeron-spark backlog` shows the unread bytes of streams.")
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
            self._metrics.publish(lag)
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

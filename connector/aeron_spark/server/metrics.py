"""The metrics of a server: their table, their counts, their state, and the text for Prometheus."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from aeron_spark.aeron.counters import read_counters
from aeron_spark.aeron.guard import DROP_LABEL, DROP_TYPE
from aeron_spark.endpoint import bulk_links
from aeron_spark.endpoint.connection import CallEnded
from aeron_spark.endpoint.endpoint_listeners import ConnectionChanged
from aeron_spark.endpoint.server_sessions import HandshakeEnded
from aeron_spark.errors import REFUSALS, AeronSparkError
from aeron_spark.facts import Bus
from aeron_spark.node.paths import driver_space, reserve_of
from aeron_spark.protocol.rpc_dispatch import PROGRAM
from aeron_spark.protocol.rpc_messages import FIRST_SERVICE
from aeron_spark.server.clients import CLIENTS
from aeron_spark.server.event_log import DETACHED, ENDINGS, EventReported, reason_of
from aeron_spark.server.http import require_prometheus_client
from aeron_spark.server.state import ServerState
from aeron_spark.server.stream_operations import StreamRead
from aeron_spark.streams.model import (
    AbortedTransaction,
    CommittedTransaction,
    LeaseOverridden,
    StreamTrimmed,
    WriterFenced,
)
from aeron_spark.wire import stream_requests

PREFIX: Final = "aeron_spark_"
BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
OTHER_STREAMS: Final = "_other"  # value of the label "stream" for all streams without series of their own

MetricType = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. Its name is without the prefix, and that of a counter with ``_total``."""

    name: str
    type: MetricType
    meaning: str
    labels: tuple[str, ...] = ()


def _gauge(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(name, "gauge", meaning, labels)


def _counter(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(name, "counter", meaning, labels)


def _histogram(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(name, "histogram", meaning, labels)


_ALL: Final = (
    _gauge("build_info", "1, with the versions as labels", "version", "aeron_version"),
    _gauge("ready", "1 if the server is ready, else 0"),
    _gauge("config_last_reload_successful", "0 while the newest configuration or clients file is not used"),
    _gauge("config_last_reload_success_timestamp_seconds", "when the configuration in use was read"),
    _gauge("authorized_keys", "client keys in the clients file"),
    _gauge(
        "next_key_expiry_timestamp_seconds", "when the next key of the clients file expires (`expires=`); 0 without one"
    ),
    _gauge("limit", "limits of the server, by the option that sets them; without a limit absent", "option"),
    _gauge("limit_used", "how much of each is used", "option"),
    _gauge("connections", "connections that have a link", "transport"),
    _gauge("sessions", "sessions: `connected`, `detached` (may be resumed) or `new`", "state"),
    _gauge("handshakes_in_progress", "handshakes that are under way"),
    _counter("handshakes_total", "ended handshakes: `accepted`, `refused`, `lost`, or `retry` for a cookie", "result"),
    _counter("refusals_total", "refused handshakes", "reason"),
    _counter("disconnections_total", "disconnected clients", "reason"),
    _histogram("handshake_duration_seconds", "time from the first packet to the acceptance of a client"),
    _histogram("call_duration_seconds", "time from the arrival of a call to its response", "service"),
    _histogram(
        "commit_duration_seconds", "commits by phase: `stage`, `publish`, `record`, `journal`, and `total`", "phase"
    ),
    _histogram("event_loop_turn_seconds", "work of the event loop after one poll"),
    _counter("received_bytes_total", "bytes of received frames: `message` for links, `bulk` for bulk links", "kind"),
    _counter("sent_bytes_total", "bytes of sent frames, likewise", "kind"),
    _counter("tampered_frames_total", "frames that failed their authentication"),
    _counter("guard_dropped_packets_total", "packets that the media driver's guard dropped", "direction", "reason"),
    _counter("calls_total", "ended calls: `ok`, `error` (one of aeron-spark) or `failed`", "service", "result"),
    _gauge("calls_waiting", "calls that wait for a thread; `unread`: their service is not known yet", "service"),
    _gauge(
        "queued_bytes", "bytes that wait: `received` for threads, `sent` for the client's acknowledgement, `bulk` of "
        "bulk links for threads", "queue",
    ),
    _gauge("streams", "streams: `ok`, `read-only`, `damaged`, `recovering` or `ended`", "state"),
    _gauge("memory_limit_bytes", "the option memoryLimit"),
    _gauge("paused_connections", "connections whose client must wait until the server has room"),
    _gauge("throttled_connections", "connections whose key exceeds its rate"),
    _gauge("partitions", "partitions of all streams"),
    _gauge("leases", "leases of readers"),
    _gauge("stages", "stages that are not committed"),
    _gauge("staged_bytes", "their bytes"),
    _counter("stream_committed_transactions_total", "committed transactions", "stream"),
    _counter("stream_committed_rows_total", "their rows", "stream"),
    _counter("stream_committed_bytes_total", "their bytes in the recordings", "stream"),
    _counter("stream_read_bytes_total", "bytes that readers received", "stream"),
    _counter("stream_trimmed_bytes_total", "bytes that retention and purges removed", "stream"),
    _gauge("stream_bytes", "committed bytes that can be read", "stream"),
    _gauge("stream_disk_bytes", "bytes of the segment files that hold them", "stream"),
    _gauge("stream_last_commit_timestamp_seconds", "when the last transaction since the start was committed", "stream"),
    _gauge("stream_reader_lag_bytes", "largest lag of the readers with a lease", "stream"),
    _gauge("stream_reader_lag_seconds", "the same in time, by the commit times of the rows", "stream"),
    _counter("commit_failures_total", "failed commits, and rows that could not be staged", "reason"),
    _counter("transactions_aborted_total", "aborted transactions"),
    _counter("writers_fenced_total", "runs of writers that a newer run fenced"),
    _counter("diverged_total", "requests of clients that have seen rows or acknowledgements that a restore lacks"),
    _counter("lease_overrides_total", "leases that retention has overridden"),
    _gauge("disk_free_bytes", "free bytes", "volume"),
    _gauge("disk_reserve_bytes", "the option diskReserve", "volume"),
    _gauge("shm_free_bytes", "free bytes of the media driver's file system that no open log may still take"),
    _gauge("shm_reserve_bytes", "with fewer, the server reports `shm_low`"),
    _gauge("driver_up", "1 if the server uses a media driver, else 0"),
    _gauge("archive_recordings_active", "recordings that are active in the archive"),
    _gauge("archive_replays_active", "replays that are active in the archive"),
    _counter("driver_errors_total", "errors of the media driver, and one for each connect of a client on it"),
    _counter("driver_naks_total", "NAK messages that the media driver sent"),
    _counter("driver_retransmits_total", "retransmissions of the media driver"),
    _gauge("backup_last_success_timestamp_seconds", "when the last backup was made; 0 without one"),
    _counter("log_lines_suppressed_total", "log lines that the limits suppressed"),
    _counter("log_events_dropped_total", "log lines that were dropped, because the reader of the log was too slow"),
)  # fmt: skip

METRICS: Final[Mapping[str, Metric]] = MappingProxyType({metric.name: metric for metric in _ALL})


PROCESS_METRICS: Final = (
    ("process_cpu_seconds_total", "counter", "processor time, user and system"),
    ("process_resident_memory_bytes", "gauge", "memory in use"),
    ("process_virtual_memory_bytes", "gauge", "address space"),
    ("process_start_time_seconds", "gauge", "when the process was started, since 1970"),
    ("process_open_fds", "gauge", "open file descriptors"),
    ("process_max_fds", "gauge", "their limit (`ulimit -n`)"),
)
"""Metrics of the server's process, which prometheus_client collects: name, type, meaning."""


def markdown() -> str:
    """Return the table for docs/monitoring.md."""
    lines = [f"| metric, prefix `{PREFIX}` | type | labels | meaning |", "|---|---|---|---|"]
    for metric in METRICS.values():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.type} | {labels} | {metric.meaning} |")
    lines += ["", "The metrics of the server's process have no prefix; the node is another process:", ""]
    lines += ["| metric | type | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {meaning} |" for name, kind, meaning in PROCESS_METRICS]
    return "\n".join(lines) + "\n"


Labels = tuple[str, ...]
SERVICES: Final = {
    bulk_links.SERVICE: "bulk-links", stream_requests.SERVICE: "streams", FIRST_SERVICE + 3: "relay", PROGRAM: "program"
}  # fmt: skip


_COMMIT_FAILURES: Final = (
    "TransportError", "WaitTimeout", "StillWorking", "DataLossError", "RefusedError", "disk-full", "stage-full",
    "draining", "ended", "fenced", "not-permitted", "schema",
)  # fmt: skip
_STREAM_COUNTERS: Final = tuple(
    one.name for one in METRICS.values() if one.type == "counter" and one.labels == ("stream",)
)
INITIAL: Final[Mapping[str, Iterable[Labels]]] = {
    "handshakes_total": [(result,) for result in ("accepted", "refused", "lost", "retry")],
    "refusals_total": [(reason,) for reason in REFUSALS],
    "disconnections_total": [(reason,) for reason in (DETACHED, *ENDINGS.values(), "banned", "kicked", "shutdown")],
    "calls_total": [(service, result) for service in SERVICES.values() for result in ("ok", "error", "failed")],
    "commit_failures_total": [(reason,) for reason in _COMMIT_FAILURES],
    "handshake_duration_seconds": [()],
    "call_duration_seconds": [(service,) for service in SERVICES.values()],
    "commit_duration_seconds": [(phase,) for phase in ("stage", "publish", "record", "journal", "total")],
}
"""The series that exist with 0 before their first event, because Prometheus sees no increase to a first value."""


class Histogram:
    """Counts durations in the buckets of ``BUCKETS_S``. One thread adds."""

    def __init__(self) -> None:
        self._counts: Final = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds

    def cumulative(self) -> list[tuple[str, int]]:
        """Return by upper bound the number of durations up to it; the last bound is ``+Inf``."""
        found, total = [], 0
        for bound, count in zip([*map(str, BUCKETS_S), "+Inf"], list(self._counts), strict=True):
            total += count
            found.append((bound, total))
        return found


class MetricCounts:
    """The counters and histograms of one server, by metric and labels. Thread-safe."""

    def __init__(self, facts: Bus, wall: Callable[[], float] = time.time) -> None:
        self._wall: Final = wall
        self._lock: Final = threading.Lock()
        counters = {name: labels for name, labels in INITIAL.items() if METRICS[name].type == "counter"}
        self._counters: Final[dict[str, Counter[Labels]]] = {
            name: Counter(dict.fromkeys(labels, 0)) for name, labels in counters.items()
        }
        self._histograms: Final[dict[str, dict[Labels, Histogram]]] = {
            name: {one: Histogram() for one in labels} for name, labels in INITIAL.items() if name not in counters
        }
        self.event_loop: Final = Histogram()
        """The turns of the event loop, which adds them itself."""
        self._last_commits: Final[dict[str, float]] = {}
        self.reloaded_at = wall()
        """When the configuration in use was read."""
        self._unused_files: Final[set[str]] = set()  # those whose last reload failed
        facts.on(EventReported, self._on_event)
        facts.on(HandshakeEnded, self._on_handshake)
        facts.on(ConnectionChanged, self._on_connection)
        facts.on(CallEnded, self._on_call)
        facts.on(StreamRead, lambda fact: self.add("stream_read_bytes_total", (fact.stream,), fact.size))
        facts.on(CommittedTransaction, self._on_commit)
        facts.on(AbortedTransaction, lambda _: self.add("transactions_aborted_total"))
        facts.on(WriterFenced, lambda _: self.add("writers_fenced_total"))
        facts.on(StreamTrimmed, lambda fact: self.add("stream_trimmed_bytes_total", (fact.stream,), fact.size))
        facts.on(LeaseOverridden, lambda fact: self.add("lease_overrides_total", (), len(fact.readers)))

    @property
    def is_reload_successful(self) -> bool:
        """Whether the last version of each file, the configuration and the clients file, is in use."""
        return not self._unused_files

    def add(self, metric: str, labels: Labels = (), amount: float = 1) -> None:
        """Increase a counter."""
        with self._lock:
            self._counters.setdefault(metric, Counter())[labels] += amount  # type: ignore[assignment]

    def observe(self, metric: str, labels: Labels, seconds: float) -> None:
        """Count a duration."""
        with self._lock:
            self._histograms.setdefault(metric, {}).setdefault(labels, Histogram()).add(seconds)

    def counters(self) -> dict[str, dict[Labels, float]]:
        """Return the counters by metric and labels."""
        with self._lock:
            return {metric: dict(counter) for metric, counter in self._counters.items()}

    def histograms(self) -> dict[str, dict[Labels, tuple[list[tuple[str, int]], float]]]:
        """Return the cumulative buckets and the sum of each histogram, by metric and labels."""
        with self._lock:
            found = {
                metric: {labels: (one.cumulative(), one.sum_s) for labels, one in by_labels.items()}
                for metric, by_labels in self._histograms.items()
            }
        found["event_loop_turn_seconds"] = {(): (self.event_loop.cumulative(), self.event_loop.sum_s)}
        return found

    def last_commits(self) -> dict[str, float]:
        """Return by stream when its last transaction was committed, in seconds since 1970."""
        with self._lock:
            return dict(self._last_commits)

    def keep_streams(self, names: Iterable[str]) -> None:
        """Move the counts of other streams, which were deleted, to the stream ``_other``. New streams begin with 0."""
        names = list(names)
        kept = {*names, OTHER_STREAMS}
        with self._lock:
            for metric in _STREAM_COUNTERS:
                counts = self._counters.setdefault(metric, Counter())
                for name in names:
                    counts.setdefault((name,), 0)
            for metric, counter in self._counters.items():
                if METRICS[metric].labels == ("stream",):
                    for labels in [labels for labels in counter if labels[0] not in kept]:
                        counter[(OTHER_STREAMS,)] += counter.pop(labels)
            for name in self._last_commits.keys() - kept:
                del self._last_commits[name]

    def _on_event(self, event: EventReported) -> None:
        match event.name:
            case "commit_failed":
                self.add("commit_failures_total", (str(event.fields.get("reason", "unknown")),))
            case "diverged":
                self.add("diverged_total", ())
            case "reloaded":  # reads all files
                self.reloaded_at = self._wall()
                self._unused_files.clear()
            case "clients_changed":
                self.reloaded_at = self._wall()
                self._unused_files.discard(CLIENTS)
            case "reload_failed":
                self._unused_files.update(event.fields["files"])

    def _on_handshake(self, ended: HandshakeEnded) -> None:
        self.add("handshakes_total", (ended.result,))
        if ended.refusal is not None:
            self.add("refusals_total", (ended.refusal.code,))
        if ended.result == "accepted":
            self.observe("handshake_duration_seconds", (), ended.seconds)

    def _on_connection(self, fact: ConnectionChanged) -> None:
        if fact.notice == "disconnect":
            self.add("disconnections_total", (reason_of(fact.cause),))

    def _on_call(self, ended: CallEnded) -> None:
        result = "ok" if ended.error is None else "error" if isinstance(ended.error, AeronSparkError) else "failed"
        service = SERVICES.get(ended.service, "program")
        self.add("calls_total", (service, result))
        self.observe("call_duration_seconds", (service,), ended.seconds)

    def _on_commit(self, transaction: CommittedTransaction) -> None:
        labels = (transaction.stream,)
        with self._lock:
            self._last_commits[transaction.stream] = self._wall()
        self.add("stream_committed_transactions_total", labels)
        self.add("stream_committed_rows_total", labels, transaction.rows)
        self.add("stream_committed_bytes_total", labels, transaction.bytes)
        for phase, seconds in (
            ("stage", transaction.stage_s), ("publish", transaction.publish_s), ("record", transaction.record_s),
            ("journal", transaction.journal_s), ("total", transaction.seconds),
        ):  # fmt: skip
            self.observe("commit_duration_seconds", (phase,), seconds)


SYSTEM_COUNTER: Final = 0  # type id of the media driver's own counters
RECORDING_POSITION: Final = 100  # type id of the archive's counter of an active recording
REPLAY_SESSIONS: Final = 112  # type id of the archive's counter that has the number of its active replays
# Counters of the media driver by the beginnings of their labels.
DRIVER_TOTALS: Final = {
    "driver_errors_total": "Errors",
    "driver_naks_total": "NAKs sent",
    "driver_retransmits_total": "Retransmits sent",
}
State = dict[str, dict[Labels, float]]


class MetricReader:
    """The gauges of a server, and the counters that other parts count. Thread-safe."""

    def __init__(
        self,
        state: ServerState,
        counts: MetricCounts,
        dropped_events: Callable[[], int],
        versions: tuple[str, str],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``versions`` are those of aeron-spark and of Aeron. ``wall`` returns seconds since 1970."""
        self._state: Final = state
        self._endpoint: Final = state.endpoint
        self._counts: Final = counts
        self._dropped_events: Final = dropped_events
        self._versions: Final = versions
        self._wall: Final = wall

    def read(self) -> State:
        """Return the values by metric and labels."""
        clients, last_backup, now = self._state.clients, self._state.backups.last, self._wall()
        grants = [] if clients is None else list(clients.grants().values())
        expiries = [one.expires for one in grants if one.expires is not None and one.expires > now]
        found: State = {
            "backup_last_success_timestamp_seconds": {(): 0.0 if last_backup is None else last_backup.time},
            "build_info": {self._versions: 1.0},
            "ready": {(): float(self._state.readiness.is_ready)},
            "config_last_reload_successful": {(): float(self._counts.is_reload_successful)},
            "config_last_reload_success_timestamp_seconds": {(): self._counts.reloaded_at},
            "authorized_keys": {(): float(len(grants))},
            "next_key_expiry_timestamp_seconds": {(): min(expiries, default=0.0)},
            "log_lines_suppressed_total": {(): float(self._state.events.suppressed_total)},
            "log_events_dropped_total": {(): float(self._dropped_events())},
        }
        found |= self._connections()
        found |= driver_state(self._state.node.aeron_dir)
        with suppress(AeronSparkError):  # the store or the server is closed meanwhile
            limits = self._state.limits()
            found["limit"] = {(option,): float(one["limit"]) for option, one in limits.items() if one["limit"]}
            found["limit_used"] = {(option,): float(one["used"]) for option, one in limits.items()}
            found |= self._streams()
        with suppress(AeronSparkError, OSError):
            reserve = self._state.disk_reserve
            volumes = reserve.volumes()
            found["disk_free_bytes"] = {(name,): float(space.free) for name, space in volumes.items()}
            found["disk_reserve_bytes"] = {(name,): float(reserve.reserve_bytes) for name in volumes}
        return found

    def _connections(self) -> State:
        endpoint, statistics = self._endpoint, self._endpoint.statistics
        sessions = endpoint.connections  # those without a link hold memory, too
        connections = [one for one in sessions if one.connected]
        transports = Counter("ipc" if one.peer.is_ipc else "udp" for one in connections)
        received = sum(one.waiting_bytes for one in sessions)
        sent = sum(one.unacknowledged_bytes for one in sessions)
        in_bulk_links = sum(endpoint.bulk_links.held_bytes().values())
        traffic = endpoint.traffic.totals()
        waiting = endpoint.worker_pool.waiting()
        return {
            "connections": {(transport,): float(transports[transport]) for transport in ("ipc", "udp")},
            "sessions": {
                ("connected",): float(len(connections)),
                ("detached",): float(max(0, len(sessions) - len(connections))),
                ("new",): float(max(0, statistics["sessions"] - len(sessions))),
            },
            "handshakes_in_progress": {(): float(statistics["handshakes"])},
            "received_bytes_total": {(kind,): float(total.received) for kind, total in traffic.items()},
            "sent_bytes_total": {(kind,): float(total.sent) for kind, total in traffic.items()},
            "tampered_frames_total": {(): float(endpoint.tampered)},
            "calls_waiting": {
                **{(name,): float(waiting.get(service, 0)) for service, name in SERVICES.items()},
                ("unread",): float(sum(one.unread_calls for one in sessions)),
            },
            "queued_bytes": {
                ("received",): float(received),
                ("sent",): float(sent),
                ("bulk",): float(in_bulk_links),
            },
            "memory_limit_bytes": {(): float(endpoint.holds.memory.limit)},
            "paused_connections": {(): float(sum(one.is_paused for one in connections))},
            "throttled_connections": {(): float(len(endpoint.holds.throttled))},
            "driver_up": {(): float(endpoint.has_driver)},
        }

    def _streams(self) -> State:
        store = self._state.store
        found: State = {
            "streams": dict.fromkeys((("ok",), ("read-only",), ("damaged",), ("recovering",), ("ended",)), 0.0)
        }
        if store is None:
            return found
        names = store.names
        for name in names:
            found["streams"][(store.condition(name).state,)] += 1
        streams = store.all()
        usages = {stream.definition.name: stream.usage() for stream in streams}
        self._counts.keep_streams(names)
        by_stream: State = {
            "stream_bytes": {(name,): float(one.bytes) for name, one in usages.items()},
            "stream_disk_bytes": {(name,): float(one.disk_bytes) for name, one in usages.items()},
            "stream_reader_lag_bytes": {(name,): float(one.lag_bytes) for name, one in usages.items()},
            "stream_reader_lag_seconds": {(name,): one.lag_seconds for name, one in usages.items()},
            "stream_last_commit_timestamp_seconds": {
                (name,): time for name, time in self._counts.last_commits().items() if name in usages
            },
        }
        totals = {
            "partitions": sum(stream.definition.partitions for stream in streams),
            "leases": sum(one.leases for one in usages.values()),
            "stages": sum(one.stages for one in usages.values()),
            "staged_bytes": store.staged_bytes,
        }
        return found | by_stream | {name: {(): float(total)} for name, total in totals.items()}


def driver_state(aeron_dir: str) -> State:
    """Return the values of the media driver and its archive by metric and labels; none if the driver is lost."""
    try:
        counters = read_counters(aeron_dir)
        space = driver_space(Path(aeron_dir))
    except (AeronSparkError, OSError):
        return {}
    found: State = {"shm_free_bytes": {(): float(space.free)}, "shm_reserve_bytes": {(): float(reserve_of(space))}}
    for metric, label in DRIVER_TOTALS.items():
        values = [one.value for one in counters if one.type_id == SYSTEM_COUNTER and one.label.startswith(label)]
        found[metric] = {(): float(sum(values))}
    found["archive_recordings_active"] = {(): float(sum(one.type_id == RECORDING_POSITION for one in counters))}
    replays = [one.value for one in counters if one.type_id == REPLAY_SESSIONS]
    found["archive_replays_active"] = {(): float(sum(replays))}
    dropped: dict[Labels, float] = {}
    for one in counters:
        if one.type_id == DROP_TYPE:
            direction, _, reason = one.label.removeprefix(DROP_LABEL).partition(": ")
            dropped[direction, reason] = float(one.value)
    found["guard_dropped_packets_total"] = dropped
    return found


Gauges = Mapping[str, Mapping[Labels, float]]
STREAM_SIZE: Final = "stream_bytes"  # the metric by which streams are compared
SUMMED: Final = frozenset({"stream_bytes", "stream_disk_bytes"})  # of other streams; else the largest value counts


class ServerMetrics:
    """The metrics of one server, in their own registry. Thread-safe.

    ``read_state`` returns, at each scrape, the values by metric and labels of gauges and of what other parts count.
    The ``max_streams`` largest streams have series of their own; the values of all others have the stream ``_other``.
    A stream keeps its series until it is deleted, so that no counter goes back. Raises OptionError without the package
    prometheus_client.
    """

    def __init__(self, counts: MetricCounts, read_state: Callable[[], Gauges], max_streams: int) -> None:
        require_prometheus_client()
        import prometheus_client
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        self._counts: Final = counts
        self._read_state: Final = read_state
        self._streams: Final = StreamLabels(max_streams)
        self._families: Final = {
            "gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily
        }  # fmt: skip
        self._registry: Final = prometheus_client.CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        prometheus_client.ProcessCollector(registry=self._registry)
        self._generate: Final = prometheus_client.generate_latest
        self.content_type: Final[str] = prometheus_client.CONTENT_TYPE_LATEST
        """The value of the HTTP header Content-Type."""

    def exposition(self) -> bytes:
        """Return all metrics as text."""
        exposition: bytes = self._generate(self._registry)
        return exposition

    def collect(self) -> Iterator[Any]:
        """Yield the families of samples. The registry calls this."""
        state, counters = self._read_state(), self._counts.counters()
        self._streams.update({labels[0]: size for labels, size in state.get(STREAM_SIZE, {}).items()})
        for metric in METRICS.values():
            if metric.type == "histogram":
                continue
            values = {**counters.get(metric.name, {}), **state.get(metric.name, {})}
            if not metric.labels:
                values = values or {(): 0.0}
            if metric.labels == ("stream",):
                values = self._streams.merged(values, is_summed=metric.type == "counter" or metric.name in SUMMED)
            family = self._family(metric)
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family
        for name, by_labels in self._counts.histograms().items():
            family = self._family(METRICS[name])
            for labels, (buckets, sum_s) in by_labels.items():
                family.add_metric(labels, buckets, sum_s)
            yield family

    def _family(self, metric: Metric) -> Any:
        return self._families[metric.type](PREFIX + metric.name, metric.meaning, labels=metric.labels)


class StreamLabels:
    """Chooses the streams that have series of their own."""

    def __init__(self, max_streams: int) -> None:
        self._max_streams: Final = max_streams
        self._named: set[str] = set()

    def update(self, sizes: Mapping[str, float]) -> None:
        """Forget deleted streams, and give the free places to the largest other streams."""
        self._named &= sizes.keys()
        free = self._max_streams - len(self._named)
        if free > 0:
            others = sorted(sizes.keys() - self._named, key=lambda name: (-sizes[name], name))
            self._named.update(others[:free])

    def merged(self, values: Mapping[Labels, float], *, is_summed: bool) -> dict[Labels, float]:
        """Return the values with those of all other streams as one: their sum, or else the largest."""
        found: dict[Labels, float] = {}
        for labels, value in values.items():
            if labels[0] in self._named:
                found[labels] = value
            elif is_summed:
                found[(OTHER_STREAMS,)] = found.get((OTHER_STREAMS,), 0.0) + value
            else:
                found[(OTHER_STREAMS,)] = max(found.get((OTHER_STREAMS,), value), value)
        return found

"""Counts what happens on a server, for its metrics. Without prometheus_client: that only formats the result."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from aeron_spark.connection import bulk_links
from aeron_spark.connection.endpoint_listeners import ConnectionChanged
from aeron_spark.connection.runner import CallEnded
from aeron_spark.errors import REFUSALS, AeronSparkError
from aeron_spark.facts import Bus
from aeron_spark.protocol.rpc_dispatch import PROGRAM
from aeron_spark.protocol.rpc_messages import FIRST_SERVICE
from aeron_spark.protocol.server_effects import HandshakeEnded
from aeron_spark.server.clients_watcher import CLIENTS
from aeron_spark.server.event_log import DETACHED, ENDINGS, reason_of
from aeron_spark.server.metric_table import BUCKETS_S, METRICS, OTHER_STREAMS
from aeron_spark.server.server_facts import EventReported, StreamRead
from aeron_spark.streams.model import (
    AbortedTransaction,
    CommittedTransaction,
    LeaseOverridden,
    StreamTrimmed,
    WriterFenced,
)
from aeron_spark.wire import stream_rpc

Labels = tuple[str, ...]
SERVICES: Final = {
    bulk_links.SERVICE: "bulk-links", stream_rpc.SERVICE: "streams", FIRST_SERVICE + 3: "relay", PROGRAM: "program"
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

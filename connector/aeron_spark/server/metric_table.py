"""The metrics of a server: names, types, labels and meanings. docs/operations.md has this table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

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
    """Return the table for docs/operations.md."""
    lines = [f"| metric, prefix `{PREFIX}` | type | labels | meaning |", "|---|---|---|---|"]
    for metric in METRICS.values():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.type} | {labels} | {metric.meaning} |")
    lines += ["", "The metrics of the server's process have no prefix; the node is another process:", ""]
    lines += ["| metric | type | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {meaning} |" for name, kind, meaning in PROCESS_METRICS]
    return "\n".join(lines) + "\n"

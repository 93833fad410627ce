"""The metrics that a server exposes, with their labels; and texts of scrapes for the tests of alerts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.promql import Labels, Scrape

PREFIX: Final = "aeron_spark_"
# Prometheus adds these labels to every series, and the metric ``up`` for every target.
TARGET: Final = frozenset({"instance", "job"})

_GAUGES: Final = {
    "build_info": "version aeron_version",
    "ready config_last_reload_successful config_last_reload_success_timestamp_seconds authorized_keys": "",
    "connections": "transport",
    "sessions": "state",
    "handshakes_in_progress": "",
    "calls_waiting": "service",
    "queued_bytes": "queue",
    "streams": "state",
    "memory_limit_bytes paused_connections throttled_connections partitions leases stages staged_bytes": "",
    "stream_bytes stream_disk_bytes stream_last_commit_timestamp_seconds": "stream",
    "stream_reader_lag_bytes stream_reader_lag_seconds": "stream",
    "disk_free_bytes disk_reserve_bytes": "volume",
    "shm_free_bytes driver_up archive_recordings_active archive_replays_active": "",
}
_COUNTERS: Final = {
    "handshakes_total": "result",
    "refusals_total disconnections_total commit_failures_total": "reason",
    "received_bytes_total sent_bytes_total": "kind",
    "tampered_frames_total": "",
    "guard_dropped_packets_total": "direction reason",
    "calls_total": "service result",
    "stream_committed_transactions_total stream_committed_rows_total stream_committed_bytes_total": "stream",
    "stream_read_bytes_total stream_trimmed_bytes_total": "stream",
    "transactions_aborted_total writers_fenced_total lease_overrides_total": "",
    "driver_errors_total driver_naks_total driver_retransmits_total log_lines_suppressed_total": "",
}
_HISTOGRAMS: Final = {
    "handshake_duration_seconds event_loop_turn_seconds": "",
    "call_duration_seconds": "service",
    "commit_duration_seconds": "phase",
}


def _expanded(table: Mapping[str, str]) -> dict[str, frozenset[str]]:
    return {PREFIX + name: frozenset(labels.split()) for names, labels in table.items() for name in names.split()}


def exposed() -> dict[str, frozenset[str]]:
    """Return the labels of each series that Prometheus has of a server, by name."""
    found = _expanded(_GAUGES) | _expanded(_COUNTERS)
    for name, labels in _expanded(_HISTOGRAMS).items():
        found |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
    return {name: labels | TARGET for name, labels in found.items()} | {"up": TARGET}


def scrape(at_s: float, /, **samples: float | Mapping[str, float]) -> Scrape:
    """Return a scrape of one server. A value is of a metric without labels, or by texts such as ``'state="ok"'``."""
    target = {"instance": "10.0.0.7:9464", "job": "aeron-spark"}
    found: dict[tuple[str, Labels], float] = {}
    for name, values in samples.items():
        for text, value in (values if isinstance(values, Mapping) else {"": values}).items():
            pairs = dict(pair.replace('"', "").split("=", 1) for pair in text.split(",") if pair)
            found[name if name == "up" else PREFIX + name, frozenset((target | pairs).items())] = value
    return Scrape(1_700_000_000.0 + at_s, found)

"""Reads the present state of a server for its metrics, at each scrape."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from aeron_spark.aeron.counters import read_counters
from aeron_spark.aeron.guard import DROP_LABEL, DROP_TYPE
from aeron_spark.errors import AeronSparkError
from aeron_spark.node.space import driver_space, reserve_of
from aeron_spark.protocol.grants import Grant
from aeron_spark.server.backups import Backups
from aeron_spark.server.disk_reserve import DiskReserve
from aeron_spark.server.message_server import MessageServer
from aeron_spark.server.metric_counts import SERVICES, Labels, MetricCounts
from aeron_spark.streams.store import StreamStore

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
        self, server: MessageServer, counts: MetricCounts, store: Callable[[], StreamStore | None],
        disk_reserve: DiskReserve, aeron_dir: Callable[[], str], is_ready: Callable[[], bool],
        grants: Callable[[], Collection[Grant]], limits: Callable[[], Mapping[str, Mapping[str, int]]],
        dropped_events: Callable[[], int], versions: tuple[str, str], backups: Backups,
        wall: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """``store`` returns the open store, or None; ``grants`` those of the keys in the clients file; ``limits`` the
        use and the limit of each resource, by option. ``versions`` are those of aeron-spark and of Aeron.
        """
        self._server: Final = server
        self._counts: Final = counts
        self._store: Final = store
        self._disk_reserve: Final = disk_reserve
        self._aeron_dir: Final = aeron_dir
        self._is_ready: Final = is_ready
        self._grants: Final = grants
        self._limits: Final = limits
        self._wall: Final = wall
        self._dropped_events: Final = dropped_events
        self._versions: Final = versions
        self._backups: Final = backups

    def read(self) -> State:
        """Return the values by metric and labels."""
        last_backup, grants, now = self._backups.last, self._grants(), self._wall()
        expiries = [one.expires for one in grants if one.expires is not None and one.expires > now]
        found: State = {
            "backup_last_success_timestamp_seconds": {(): 0.0 if last_backup is None else last_backup.time},
            "build_info": {self._versions: 1.0},
            "ready": {(): float(self._is_ready())},
            "config_last_reload_successful": {(): float(self._counts.is_reload_successful)},
            "config_last_reload_success_timestamp_seconds": {(): self._counts.reloaded_at},
            "authorized_keys": {(): float(len(grants))},
            "next_key_expiry_timestamp_seconds": {(): min(expiries, default=0.0)},
            "log_lines_suppressed_total": {(): float(self._server.events.suppressed_total)},
            "log_events_dropped_total": {(): float(self._dropped_events())},
        }
        found |= self._connections()
        found |= driver_state(self._aeron_dir())
        with suppress(AeronSparkError):  # the store or the server is closed meanwhile
            limits = self._limits()
            found["limit"] = {(option,): float(one["limit"]) for option, one in limits.items() if one["limit"]}
            found["limit_used"] = {(option,): float(one["used"]) for option, one in limits.items()}
            found |= self._streams()
        with suppress(AeronSparkError, OSError):
            volumes = self._disk_reserve.volumes()
            found["disk_free_bytes"] = {(name,): float(space.free) for name, space in volumes.items()}
            found["disk_reserve_bytes"] = {(name,): float(self._disk_reserve.reserve_bytes) for name in volumes}
        return found

    def _connections(self) -> State:
        runtime, statistics = self._server.runtime, self._server.statistics
        sessions = self._server.sessions  # those without a link hold memory, too
        connections = [one for one in sessions if one.connected]
        transports = Counter("ipc" if one.peer.is_ipc else "udp" for one in connections)
        received = sum(one.waiting_bytes for one in sessions)
        sent = sum(one.unacknowledged_bytes for one in sessions)
        in_bulk_links = sum(runtime.bulk_links.held_bytes().values())
        traffic = runtime.traffic.totals()
        waiting = runtime.worker_pool.waiting()
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
            "tampered_frames_total": {(): float(runtime.tampered)},
            "calls_waiting": {
                **{(name,): float(waiting.get(service, 0)) for service, name in SERVICES.items()},
                ("unread",): float(sum(one.unread_calls for one in sessions)),
            },
            "queued_bytes": {
                ("received",): float(received),
                ("sent",): float(sent),
                ("bulk",): float(in_bulk_links),
            },
            "memory_limit_bytes": {(): float(runtime.holds.memory.limit)},
            "paused_connections": {(): float(sum(one.is_paused for one in connections))},
            "throttled_connections": {(): float(len(runtime.holds.throttled))},
            "driver_up": {(): float(self._server.has_driver)},
        }

    def _streams(self) -> State:
        store = self._store()
        found: State = {
            "streams": dict.fromkeys((("ok",), ("read-only",), ("damaged",), ("recovering",), ("ended",)), 0.0)
        }
        if store is None:
            return found
        names = store.names
        for name in names:
            found["streams"][(store.condition(name).state,)] += 1
        figures = {stream.definition.name: stream.figures() for stream in store.all()}
        self._counts.keep_streams(names)
        by_stream: State = {
            "stream_bytes": {(name,): float(one.bytes) for name, one in figures.items()},
            "stream_disk_bytes": {(name,): float(one.disk_bytes) for name, one in figures.items()},
            "stream_reader_lag_bytes": {(name,): float(one.lag_bytes) for name, one in figures.items()},
            "stream_reader_lag_seconds": {(name,): one.lag_s for name, one in figures.items()},
            "stream_last_commit_timestamp_seconds": {
                (name,): time for name, time in self._counts.last_commits().items() if name in figures
            },
        }
        totals = {
            "partitions": sum(one.partitions for one in figures.values()),
            "leases": sum(one.leases for one in figures.values()),
            "stages": sum(one.stages for one in figures.values()),
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

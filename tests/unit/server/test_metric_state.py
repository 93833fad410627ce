"""Tests the state that a scrape reads, with simulated connections."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, Final

import pytest

from aeron_spark.endpoint.usage import EndpointTraffic
from aeron_spark.facts import Bus
from aeron_spark.protocol.grants import Grant
from aeron_spark.protocol.rpc_dispatch import PROGRAM
from aeron_spark.server.metrics import METRICS, MetricCounts, MetricReader, ServerMetrics
from aeron_spark.wire import stream_requests

CONNECTIONS: Final = 1_000
SCRAPE_TIMEOUT_S: Final = 0.25  # the target is 0.05 s, on an idle machine


def connection(number: int) -> Any:
    return SimpleNamespace(
        peer=SimpleNamespace(is_ipc=number % 4 == 0),
        connected=True,
        waiting_bytes=10,
        unacknowledged_bytes=20,
        is_paused=number % 100 == 0,
        unread_calls=2,
    )


@pytest.fixture
def reader() -> MetricReader:
    connections = [connection(number) for number in range(CONNECTIONS)]
    detached = connection(1)
    detached.connected = False
    endpoint: Any = SimpleNamespace(
        connections=[*connections, detached], has_driver=True, traffic=EndpointTraffic(), tampered=3,
        worker_pool=SimpleNamespace(waiting=lambda: {PROGRAM: 5, stream_requests.SERVICE: 2, None: 3}),
        bulk_links=SimpleNamespace(held_bytes=lambda: dict.fromkeys(range(7), 100)),
        holds=SimpleNamespace(throttled=connections[:2], memory=SimpleNamespace(limit=512)),
        statistics={"sessions": CONNECTIONS + 3, "handshakes": 7},
    )  # fmt: skip
    events: Any = SimpleNamespace(suppressed_total=11)
    reserve: Any = SimpleNamespace(volumes=lambda: {"store": SimpleNamespace(free=100)}, reserve_bytes=50)
    backups: Any = SimpleNamespace(last=SimpleNamespace(time=17.0))
    grants = [Grant(), Grant(expires=900.0), Grant(expires=2_000.0), Grant(expires=3_000.0)]
    state: Any = SimpleNamespace(
        endpoint=endpoint, events=events, store=None, disk_reserve=reserve, backups=backups,
        node=SimpleNamespace(aeron_dir="/no/such/driver"), readiness=SimpleNamespace(is_ready=True),
        clients=SimpleNamespace(grants=lambda: dict(enumerate(grants))),
        limits=lambda: {"maxConnections": {"used": 7, "limit": 10}, "maxPartitions": {"used": 3, "limit": 0}},
    )  # fmt: skip
    return MetricReader(state, MetricCounts(Bus()), lambda: 13, ("1", "2"), lambda: 1_000.0)


def test_connections_and_sessions_are_counted_by_their_states(reader: MetricReader) -> None:
    state = reader.read()
    assert state["connections"] == {("ipc",): 250, ("udp",): 750}
    assert state["sessions"] == {("connected",): CONNECTIONS, ("detached",): 1, ("new",): 2}
    assert state["paused_connections"] == {(): 10}
    assert state["throttled_connections"] == {(): 2}
    assert state["queued_bytes"] == {("received",): 10_010, ("sent",): 20_020, ("bulk",): 700}
    assert state["calls_waiting"] == {
        ("streams",): 2, ("bulk-links",): 0, ("relay",): 0, ("program",): 5, ("unread",): 2 * (CONNECTIONS + 1),
    }  # fmt: skip
    assert state["disk_free_bytes"] == {("store",): 100}
    assert state["authorized_keys"] == {(): 4}
    assert state["next_key_expiry_timestamp_seconds"] == {(): 2_000.0}
    assert state["limit"] == {("maxConnections",): 10}
    assert state["limit_used"] == {("maxConnections",): 7, ("maxPartitions",): 3}
    assert state["log_lines_suppressed_total"] == {(): 11}
    assert state["log_events_dropped_total"] == {(): 13}


def test_without_a_media_driver_the_other_metrics_are_there(reader: MetricReader) -> None:
    assert set(reader.read()) <= set(METRICS)
    assert "driver_naks_total" not in reader.read()


def test_a_scrape_with_a_thousand_connections_is_short(reader: MetricReader) -> None:
    metrics = ServerMetrics(MetricCounts(Bus()), reader.read, 200)
    metrics.exposition()
    begun = time.thread_time()
    metrics.exposition()
    assert time.thread_time() - begun < SCRAPE_TIMEOUT_S

"""Tests the metrics of a server: their names, the number of series, counts, and the time of a scrape."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest

from aeron_spark.endpoint.connection import CallEnded
from aeron_spark.endpoint.endpoint_listeners import ConnectionChanged, Ending
from aeron_spark.endpoint.server_sessions import HandshakeEnded
from aeron_spark.errors import OptionError, RefusedError
from aeron_spark.facts import Bus
from aeron_spark.protocol.rpc_dispatch import PROGRAM
from aeron_spark.protocol.sources import Refusal, parse_source
from aeron_spark.server.event_log import EventReported
from aeron_spark.server.metrics import (
    BUCKETS_S,
    METRICS,
    PREFIX,
    PROCESS_METRICS,
    Histogram,
    MetricCounts,
    ServerMetrics,
    State,
    StreamLabels,
    markdown,
)
from aeron_spark.server.stream_operations import StreamRead
from aeron_spark.streams.model import CommittedTransaction, StreamTrimmed
from aeron_spark.wire import stream_requests

SOURCE: Final = parse_source("192.0.2.7:4000")
SAMPLE: Final = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)")


def scraped(counts: MetricCounts, state: State | None = None, max_streams: int = 200) -> dict[tuple[str, str], float]:
    """Return the samples of a scrape by name and labels."""
    text = ServerMetrics(counts, lambda: state or {}, max_streams).exposition().decode()
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            found[match[1], match[2] or ""] = float(match[3])
    return found


def transaction(stream: str, rows: int = 10, size: int = 4096) -> CommittedTransaction:
    return CommittedTransaction(stream, "w", 1, rows, size, 0.002, 0.02, 0.2, 0.002)


def test_each_metric_of_the_table_is_exposed_with_its_type_and_prefix() -> None:
    text = ServerMetrics(MetricCounts(Bus()), dict, 200).exposition().decode()
    types = dict(re.findall(r"# TYPE (\S+) (\S+)", text))
    for metric in METRICS.values():
        if metric.type != "histogram" or metric.name == "event_loop_turn_seconds":
            assert types[PREFIX + metric.name] == metric.type, metric.name


def test_counters_exist_with_0_before_their_first_event() -> None:
    """Regression: Prometheus saw no increase to the first value of a counter that had no series before."""
    facts = Bus()
    counts = MetricCounts(facts)
    counts.keep_streams(["prices"])
    found = scraped(counts, {"stream_bytes": {("prices",): 0.0}})
    for name, labels in (
        ("commit_failures_total", 'reason="TransportError"'),
        ("refusals_total", 'reason="full"'),
        ("disconnections_total", 'reason="kicked"'),
        ("handshakes_total", 'result="lost"'),
        ("calls_total", 'result="failed",service="streams"'),
        ("stream_committed_rows_total", 'stream="prices"'),
        ("commit_duration_seconds_count", 'phase="total"'),
        ("log_events_dropped_total", ""),
    ):
        assert found[PREFIX + name, labels] == 0, name
    facts.emit(transaction("prices"))
    counts.keep_streams(["prices"])
    found = scraped(counts, {"stream_bytes": {("prices",): 0.0}})
    assert found["aeron_spark_stream_committed_rows_total", 'stream="prices"'] == 10


def test_the_metrics_of_the_process_have_the_usual_names() -> None:
    found = scraped(MetricCounts(Bus()))
    assert {name for name, _ in found if name.startswith("process_")} == {name for name, *_ in PROCESS_METRICS}
    assert found["process_resident_memory_bytes", ""] > 1 << 20
    assert found["process_open_fds", ""] <= found["process_max_fds", ""]
    assert 0 < found["process_start_time_seconds", ""] < time.time()


def test_a_commit_counts_for_its_stream_and_each_phase() -> None:
    facts = Bus()
    counts = MetricCounts(facts, lambda: 1_700_000_000.0)
    facts.emit(transaction("prices"))
    facts.emit(transaction("prices", rows=5))
    found = scraped(counts, {"stream_bytes": {("prices",): 8192.0}})
    assert found["aeron_spark_stream_committed_transactions_total", 'stream="prices"'] == 2
    assert found["aeron_spark_stream_committed_rows_total", 'stream="prices"'] == 15
    assert found["aeron_spark_stream_committed_bytes_total", 'stream="prices"'] == 8192
    for phase in ("stage", "publish", "record", "journal", "total"):
        assert found["aeron_spark_commit_duration_seconds_count", f'phase="{phase}"'] == 2
    assert found["aeron_spark_commit_duration_seconds_bucket", 'le="0.1",phase="record"'] == 0
    assert found["aeron_spark_commit_duration_seconds_bucket", 'le="0.25",phase="record"'] == 2
    assert counts.last_commits() == {"prices": 1_700_000_000.0}


def test_a_first_commit_of_a_stream_does_not_disturb_a_scrape_that_runs() -> None:
    facts = Bus()
    counts = MetricCounts(facts, lambda: 5.0)
    facts.emit(transaction("prices"))
    read = iter(counts.last_commits().items())
    facts.emit(transaction("orders"))
    assert list(read) == [("prices", 5.0)]


def test_handshakes_refusals_and_disconnections_are_counted_by_reason() -> None:
    facts = Bus()
    counts = MetricCounts(facts)
    facts.emit(HandshakeEnded("accepted", SOURCE, None, bytes(32), "t", 0.02))
    facts.emit(HandshakeEnded("refused", SOURCE, Refusal("rate", "slower"), None, "", 0.0))
    connection: Any = object()
    facts.emit(ConnectionChanged(connection, "connect", None))
    facts.emit(ConnectionChanged(connection, "disconnect", Ending.CLOSED_BY_CLIENT))
    facts.emit(ConnectionChanged(connection, "disconnect", RefusedError("x", reason="kicked")))
    found = scraped(counts)
    assert found["aeron_spark_handshakes_total", 'result="accepted"'] == 1
    assert found["aeron_spark_handshakes_total", 'result="refused"'] == 1
    assert found["aeron_spark_refusals_total", 'reason="rate"'] == 1
    assert found["aeron_spark_disconnections_total", 'reason="closed-by-client"'] == 1
    assert found["aeron_spark_disconnections_total", 'reason="kicked"'] == 1
    assert found["aeron_spark_handshake_duration_seconds_count", ""] == 1


@pytest.mark.parametrize(
    ("service", "error", "labels"),
    [
        (stream_requests.SERVICE, None, 'service="streams",result="ok"'),
        (stream_requests.SERVICE, RefusedError("no"), 'service="streams",result="error"'),
        (PROGRAM, ZeroDivisionError(), 'service="program",result="failed"'),
    ],
)
def test_calls_are_counted_by_service_and_result(service: int, error: BaseException | None, labels: str) -> None:
    facts, connection = Bus(), object()
    counts: Any = MetricCounts(facts)
    facts.emit(CallEnded(connection, "7-1", service, "a call", None, 0.5, error))  # type: ignore[arg-type]
    found = {
        name: value
        for (name, text), value in scraped(counts).items()
        if sorted(text.split(",")) == sorted(labels.split(","))
    }
    assert found["aeron_spark_calls_total"] == 1


def test_a_failed_reload_is_visible_until_the_next_good_one() -> None:
    now = 100.0
    facts = Bus()
    counts = MetricCounts(facts, lambda: now)
    facts.emit(EventReported("reload_failed", {"files": ("clients",)}))
    assert not counts.is_reload_successful
    now = 200.0
    facts.emit(EventReported("clients_changed", {}))
    assert (counts.is_reload_successful, counts.reloaded_at) == (True, 200.0)


def test_a_good_clients_file_does_not_hide_a_wrong_configuration() -> None:
    facts = Bus()
    counts = MetricCounts(facts)
    facts.emit(EventReported("reload_failed", {"files": ("configuration",)}))
    facts.emit(EventReported("clients_changed", {}))
    assert not counts.is_reload_successful
    facts.emit(EventReported("reload_failed", {"files": ("clients",)}))
    facts.emit(EventReported("reloaded", {}))
    assert counts.is_reload_successful


@pytest.mark.slow
def test_ten_thousand_streams_make_less_than_four_thousand_series() -> None:
    facts = Bus()
    counts = MetricCounts(facts)
    names = [f"stream-{number}" for number in range(10_000)]
    for number, name in enumerate(names):
        facts.emit(transaction(name, size=number))
        facts.emit(StreamRead(name, 10))
        facts.emit(StreamTrimmed(name, 10))
    for service in ("streams", "bulk-links", "relay", "program"):
        for result in ("ok", "error", "failed"):
            counts.add("calls_total", (service, result))
        counts.observe("call_duration_seconds", (service,), 0.1)
    by_stream = {(name,): float(number) for number, name in enumerate(names)}
    gauges = ("stream_bytes", "stream_disk_bytes", "stream_reader_lag_bytes", "stream_reader_lag_seconds")
    state: State = {name: dict(by_stream) for name in (*gauges, "stream_last_commit_timestamp_seconds")}
    found = scraped(counts, state)
    assert len(found) < 4000
    transactions = {
        text: value for (name, text), value in found.items() if name.endswith("_committed_transactions_total")
    }
    assert len(transactions) == 201
    assert transactions['stream="_other"'] == 9_800
    assert found["aeron_spark_stream_bytes", 'stream="stream-9999"'] == 9_999
    assert found["aeron_spark_stream_bytes", 'stream="_other"'] == sum(range(9_800))
    assert found["aeron_spark_stream_reader_lag_seconds", 'stream="_other"'] == 9_799


def test_a_stream_keeps_its_series_when_another_one_becomes_larger() -> None:
    labels = StreamLabels(1)
    labels.update({"a": 2.0, "b": 1.0})
    labels.update({"a": 2.0, "b": 3.0})
    assert labels.merged({("a",): 1.0, ("b",): 5.0}, is_summed=True) == {("a",): 1.0, ("_other",): 5.0}
    labels.update({"b": 3.0})
    assert labels.merged({("b",): 5.0}, is_summed=True) == {("b",): 5.0}


def test_the_counts_of_deleted_streams_stay_in_the_sum_of_the_others() -> None:
    facts = Bus()
    counts = MetricCounts(facts)
    facts.emit(transaction("old", rows=3))
    counts.keep_streams(["new"])
    assert counts.counters()["stream_committed_rows_total"] == {("_other",): 3, ("new",): 0}
    assert counts.last_commits() == {}


def test_histograms_go_from_one_millisecond_to_ten_seconds() -> None:
    assert (BUCKETS_S[0], BUCKETS_S[-1]) == (0.001, 10.0)
    histogram = Histogram()
    for seconds in (0.0, 0.001, 0.0011, 10.0, 11.0):
        histogram.add(seconds)
    buckets = dict(histogram.cumulative())
    assert (buckets["0.001"], buckets["0.0025"], buckets["10.0"], buckets["+Inf"]) == (2, 3, 4, 5)


def test_a_name_of_a_stream_cannot_forge_a_sample() -> None:
    name = 'x"} 1\naeron_spark_ready 1\n#'
    text = ServerMetrics(MetricCounts(Bus()), lambda: {"stream_bytes": {(name,): 5.0}}, 200).exposition().decode()
    assert len([line for line in text.splitlines() if line.startswith("aeron_spark_ready")]) == 1


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(OptionError, match=r"prometheus_client.*pip install 'aeron-spark\[server\]'"):
        ServerMetrics(MetricCounts(Bus()), dict, 200)


def test_counts_need_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    facts = Bus()
    counts = MetricCounts(facts)
    facts.emit(transaction("prices"))
    assert counts.counters()["stream_committed_rows_total"] == {("prices",): 10}


def test_a_scrape_with_four_thousand_series_is_short() -> None:
    facts = Bus()
    counts = MetricCounts(facts)
    for number in range(200):
        facts.emit(transaction(f"s{number}"))
    state: State = {"stream_bytes": {(f"s{number}",): 1.0 for number in range(200)}}
    metrics = ServerMetrics(counts, lambda: state, 200)
    metrics.exposition()
    begun = time.thread_time()
    metrics.exposition()
    assert time.thread_time() - begun < 0.5  # a bound for slow machines


def test_the_table_in_the_document_is_that_of_the_declarations() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "monitoring.md"
    assert markdown() in page.read_text()

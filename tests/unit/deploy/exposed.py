"""The metrics that Prometheus has of a server, and scrapes of a server in a given state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from aeron_spark.facts import Bus
from aeron_spark.server.metrics import METRICS, PREFIX, PROCESS_METRICS, MetricCounts, ServerMetrics, State
from tests.promql import Scrape

# Prometheus adds these labels to every series, and the metric ``up`` for every target.
EPOCH_S: Final = 1_700_000_000.0  # of the scrapes, since 1970
TARGET: Final = {"instance": "10.0.0.7:9464", "job": "aeron-spark"}
MAX_STREAMS: Final = 200
Durations = Mapping[float, int]  # seconds, and how often they were observed


def exposed() -> dict[str, frozenset[str]]:
    """Return the labels of each series that Prometheus has of a server, by name."""
    found = {"up": frozenset(TARGET)}
    for metric in METRICS.values():
        labels = frozenset(metric.labels) | frozenset(TARGET)
        if metric.type == "histogram":
            found |= {f"{PREFIX}{metric.name}_{part}": labels for part in ("sum", "count")}
            found[f"{PREFIX}{metric.name}_bucket"] = labels | {"le"}
        else:
            found[PREFIX + metric.name] = labels
    return found | {name: frozenset(TARGET) for name, *_ in PROCESS_METRICS}


def scrape(at_s: float, state: State, turns: Durations, commits: Mapping[str, Durations]) -> Scrape:
    """Return what Prometheus reads from a server in this state.

    ``turns`` are those of its event loop, ``commits`` those of its streams, by phase. The streams of ``stream_bytes``
    have series of their own.
    """
    counts = MetricCounts(Bus())
    for seconds, times in turns.items():
        for _ in range(times):
            counts.event_loop.add(seconds)
    for phase, durations in commits.items():
        for seconds, times in durations.items():
            for _ in range(times):
                counts.observe("commit_duration_seconds", (phase,), seconds)
    text = ServerMetrics(counts, lambda: state, MAX_STREAMS).exposition().decode()
    samples = {
        (sample.name, frozenset((TARGET | sample.labels).items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    return Scrape(EPOCH_S + at_s, samples | {("up", frozenset(TARGET.items())): 1.0})


def down(at_s: float) -> Scrape:
    """Return what Prometheus has of a server that it cannot read."""
    return Scrape(EPOCH_S + at_s, {("up", frozenset(TARGET.items())): 0.0})

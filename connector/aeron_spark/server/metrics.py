"""Exposes the metrics of a server in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from aeron_spark.errors import OptionError
from aeron_spark.server.metric_counts import Labels, MetricCounts
from aeron_spark.server.metric_table import METRICS, OTHER_STREAMS, PREFIX, Metric

Gauges = Mapping[str, Mapping[Labels, float]]
STREAM_SIZE: Final = "stream_bytes"  # the metric by which streams are compared
SUMMED: Final = frozenset({"stream_bytes", "stream_disk_bytes"})  # of other streams; else the largest value counts


def require_prometheus_client() -> None:
    """Raise OptionError without the package prometheus_client."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        raise OptionError(
            "option 'http' needs the Python package prometheus_client, which is not installed",
            remedy="Install it: pip install 'aeron-spark[server]'",
        ) from None


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

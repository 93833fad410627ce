"""The metrics and the HTTP pages of a server, composed from its parts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from aeron_spark.facts import Bus
from aeron_spark.server.http import HttpServer, json_page
from aeron_spark.server.message_server import MessageServer
from aeron_spark.server.metric_counts import MetricCounts
from aeron_spark.server.metric_state import State
from aeron_spark.server.metrics import ServerMetrics
from aeron_spark.server.readiness import Readiness
from aeron_spark.transport.addresses import HostPort

LOOP_TIMEOUT_S: Final = 10.0  # without a turn of the event loop, until the server is not healthy


class Monitoring:
    """Counts what a server does, from its construction on, and serves ``/metrics``, ``/healthz`` and ``/readyz``."""

    def __init__(
        self, server: MessageServer, facts: Bus, readiness: Readiness, max_streams: int,
        read_state: Callable[[MetricCounts], State],
    ) -> None:  # fmt: skip
        """``read_state`` reads the gauges of the server. Raises OptionError without the package prometheus_client."""
        self._loop: Final = server.runtime.loop
        self._readiness: Final = readiness
        self._http: HttpServer | None = None
        counts = MetricCounts(facts)
        self._metrics: Final = ServerMetrics(counts, lambda: read_state(counts), max_streams)
        server.facts.add(counts)
        server.events.observe(counts.on_event)
        self._loop.on_turn = counts.event_loop.add

    @property
    def address(self) -> HostPort | None:
        """The address of the pages; None before ``listen``."""
        return None if self._http is None else self._http.address

    def listen(self, address: HostPort) -> None:
        """Serve the pages. Raises InUseError or SetupError."""
        pages = {"/metrics": self._show_metrics, "/healthz": self._show_health, "/readyz": self._show_readiness}
        self._http = HttpServer(address, pages)

    def close(self) -> None:
        """Serve no more."""
        if self._http is not None:
            self._http.close()

    def _show_metrics(self) -> tuple[int, str, bytes]:
        return 200, self._metrics.content_type, self._metrics.exposition()

    def _show_health(self) -> tuple[int, str, bytes]:
        silent_s = time.monotonic() - self._loop.turned_at
        if silent_s < LOOP_TIMEOUT_S:
            return 200, "text/plain", b"ok\n"
        return 503, "text/plain", f"the event loop has not turned for {silent_s:.0f} s\n".encode()

    def _show_readiness(self) -> tuple[int, str, bytes]:
        reasons = [f"{name}: {problem}" for name, problem in self._readiness.reasons.items()]
        return json_page(503 if reasons else 200, reasons)

"""Publishes the lags of queries over HTTP, for Prometheus."""

from __future__ import annotations

import errno
from typing import Final

from aeron_spark.errors import InUseError, OptionError, SetupError
from aeron_spark.process_end import ExitHook
from aeron_spark.transport.addresses import HostPort

LABELS: Final = ("query", "stream")
END_TIMEOUT_S: Final = 5.0  # of the HTTP server's thread, which checks each 0.5 s whether it should end


class LagMetrics:
    """The metrics ``aeron_spark_query_...``, which one HTTP server publishes at ``address``.

    It has a separate registry, so the program's other metrics are not published here. Raises OptionError for an
    invalid address, SetupError without the package prometheus_client or without the address on this machine, and
    InUseError if another program listens at the address. One thread at a time may publish and remove values.
    """

    def __init__(self, address: str) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise SetupError(
                "LagListener(prometheus=...) needs the Python package prometheus_client, which is not installed",
                remedy="Install it with: pip install 'aeron-spark[server]'",
            ) from None
        wanted = _parsed(address)
        registry = prometheus_client.CollectorRegistry()
        prefix = "aeron_spark_query"
        self._bytes = prometheus_client.Gauge(
            f"{prefix}_lag_bytes", "Recorded bytes that the query has not read.", LABELS, registry=registry
        )
        self._seconds = prometheus_client.Gauge(
            f"{prefix}_lag_seconds",
            "Age of the oldest committed row that the query has not read. Not on the direct route.",
            LABELS,
            registry=registry,
        )
        self._batch_seconds = prometheus_client.Gauge(
            f"{prefix}_batch_duration_seconds", "Duration of the last micro-batch.", LABELS, registry=registry
        )
        self._rows = prometheus_client.Counter(
            f"{prefix}_input_rows", "Rows that the query has read.", LABELS, registry=registry
        )
        self._streams: dict[str, set[tuple[str, str]]] = {}  # by id of the query: its pairs of query and stream
        try:
            self._server, self._thread = prometheus_client.start_http_server(wanted.port, wanted.host, registry)
        except OSError as error:
            raise _cannot_listen(wanted, error) from None
        self.address: Final = str(HostPort(wanted.host, self._server.server_port))
        self._hook = ExitHook(self.close)

    def publish(
        self, query_id: str, query: str, stream: str, *, lag_bytes: int, lag_seconds: float | None,
        batch_seconds: float, input_rows: int,
    ) -> None:  # fmt: skip
        """Publish the values of one stream of a query after a micro-batch; ``input_rows`` are those of this batch."""
        self._streams.setdefault(query_id, set()).add((query, stream))
        self._bytes.labels(query, stream).set(lag_bytes)
        if lag_seconds is not None:
            self._seconds.labels(query, stream).set(lag_seconds)
        self._batch_seconds.labels(query, stream).set(batch_seconds)
        self._rows.labels(query, stream).inc(input_rows)

    def remove(self, query_id: str) -> None:
        """Remove the values of a query; does nothing for an unknown one."""
        for labels in self._streams.pop(query_id, ()):
            for metric in (self._bytes, self._seconds, self._batch_seconds, self._rows):
                metric.remove(*labels)

    def close(self) -> None:
        """End the HTTP server and its thread. A second call does nothing."""
        self._hook.cancel()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(END_TIMEOUT_S)
            self._server.server_close()


def _parsed(address: str) -> HostPort:
    try:
        return HostPort.parse(f"127.0.0.1{address}" if address.startswith(":") else address)
    except ValueError as error:
        raise OptionError(
            f"the address {address!r} for Prometheus {error}",
            remedy="Give host:port; ':9465' means port 9465 of this machine's loopback address.",
        ) from None


def _cannot_listen(address: HostPort, error: OSError) -> InUseError | SetupError:
    if error.errno == errno.EADDRINUSE:
        return InUseError(
            f"cannot listen on {address}: the address is in use",
            remedy="Stop the program that has it, or choose another port",
        )
    return SetupError(f"cannot listen on {address}: {error}", remedy="Give an address of this machine, or ':9465'.")

"""The lags of queries are published over HTTP, for Prometheus."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from aeron_spark.errors import InUseError, OptionError, SetupError
from aeron_spark.spark.lag_listener import LagListener, LagMetrics

TIMEOUT_S = 30.0
SERVERS = {"feeds.example:20121": "aeron-spark:key"}


def expose(address: str) -> dict[str, float]:
    """Return the values that Prometheus reads, by name with labels."""
    with urlopen(f"http://{address}/metrics", timeout=TIMEOUT_S) as response:
        lines = str(response.read(), "utf-8").splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in samples if "_created" not in name}


def progress(query: str, name: str | None, stream: str, unread: int, *, seconds: float | None, rows: int) -> Any:
    """Return the event of a micro-batch of 250 ms that leaves bytes of one partition unread."""
    end = {
        "done": "", "fingerprints": {"s/0": "00000001"}, "recordings": {"s/0": 64},
        "stream": {"name": stream, "servers": SERVERS}, "v": 1,
    }  # fmt: skip
    lag = {"bytes": unread, "partitions": {}} | ({} if seconds is None else {"seconds": seconds})
    latest = {"lag": lag, "recordings": {"s/0": 64 + unread}, "stream": end["stream"], "v": 1}
    source = SimpleNamespace(latestOffset=json.dumps(latest), endOffset=json.dumps(end), numInputRows=rows)
    return SimpleNamespace(
        progress=SimpleNamespace(
            id=query, name=name, batchId=1, timestamp="2026-03-01T09:00:00Z", batchDuration=250, sources=[source]
        )
    )


@pytest.fixture
def listener() -> Iterator[LagListener]:
    with closing(LagListener(prometheus="127.0.0.1:0")) as one:
        yield one


def test_a_listener_publishes_the_values_of_each_query_and_stream(listener: LagListener) -> None:
    listener.onQueryProgress(progress("1", "prices", "quotes", 96, seconds=2.5, rows=7))
    listener.onQueryProgress(progress("1", "prices", "quotes", 32, seconds=0.5, rows=3))
    listener.onQueryProgress(progress("2", None, "trades", 0, seconds=None, rows=1))
    one, other = '{query="prices",stream="quotes"}', '{query="2",stream="trades"}'
    assert expose(listener.metrics_address) == {
        f"aeron_spark_query_lag_bytes{one}": 32.0,
        f"aeron_spark_query_lag_seconds{one}": 0.5,
        f"aeron_spark_query_batch_duration_seconds{one}": 0.25,
        f"aeron_spark_query_input_rows_total{one}": 10.0,
        f"aeron_spark_query_lag_bytes{other}": 0.0,
        f"aeron_spark_query_batch_duration_seconds{other}": 0.25,
        f"aeron_spark_query_input_rows_total{other}": 1.0,
    }


def test_a_query_that_has_ended_is_not_published_any_more(listener: LagListener) -> None:
    listener.onQueryProgress(progress("1", "prices", "quotes", 96, seconds=2.5, rows=7))
    listener.onQueryProgress(progress("2", "news", "trades", 96, seconds=2.5, rows=7))
    ended: Any = SimpleNamespace(id="1")
    listener.onQueryTerminated(ended)
    listener.onQueryTerminated(ended)
    assert {name.partition("{")[2] for name in expose(listener.metrics_address)} == {'query="news",stream="trades"}'}
    assert listener.of("prices") is not None


def test_two_listeners_publish_only_their_own_values(listener: LagListener) -> None:
    with closing(LagListener(prometheus="127.0.0.1:0")) as other:
        other.onQueryProgress(progress("1", "prices", "quotes", 96, seconds=2.5, rows=7))
        assert expose(listener.metrics_address) == {}
        assert len(expose(other.metrics_address)) == 4


def test_close_ends_the_server_and_its_thread(listener: LagListener) -> None:
    address = listener.metrics_address
    threads = set(threading.enumerate())
    listener.close()
    listener.close()
    assert len(threads - set(threading.enumerate())) == 1
    with pytest.raises(URLError):
        urlopen(f"http://{address}/metrics", timeout=TIMEOUT_S)


@pytest.mark.slow
def test_a_process_ends_although_its_listener_was_not_closed() -> None:
    program = "from aeron_spark.spark import LagListener\nprint(LagListener(prometheus=':0').metrics_address)"
    ended = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, timeout=TIMEOUT_S)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("127.0.0.1:")


def test_a_port_in_use_is_refused(listener: LagListener) -> None:
    with pytest.raises(InUseError, match=f"cannot listen on {listener.metrics_address}: the address is in use"):
        LagMetrics(listener.metrics_address)


@pytest.mark.parametrize("address", ["9465", "host", "127.0.0.1:", ":70000"])
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(OptionError, match=f"the address '{address}' for Prometheus"):
        LagMetrics(address)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(SetupError, match=r"cannot listen on 192\.0\.2\.1:9465"):
        LagMetrics("192.0.2.1:9465")


def test_the_error_without_prometheus_client_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(SetupError, match=r"pip install 'aeron-spark\[server\]'"):
        LagListener(prometheus=":9465")
    assert LagListener().metrics_address == ""

"""``aeron_spark.connect`` without a media driver; no test here starts one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from aeron_spark import node
from aeron_spark.client import client as opening
from aeron_spark.errors import AeronSparkError, ConnectError, OptionError, SetupError, WaitTimeout
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.node.locks import FileLock
from tests.unit.endpoint.endpoints import TIMEOUT_S, wait_for

ADDRESS = "127.0.0.1:20121"


class NoNodeError(Exception):
    """Ends a connect before it uses the media driver."""


class Starts:
    """Replaces ``node.ensure``: records the time of each call, and raises ``error`` once ``may_end`` is set."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error or NoNodeError()
        self.seconds: list[float] = []
        self.waits: list[float] = []
        self.begun, self.may_end = threading.Event(), threading.Event()

    def ensure(self, aeron_dir: str | None, *, timeout: float = node.START_TIMEOUT, wait_s: float) -> Any:
        self.seconds.append(timeout)
        self.waits.append(wait_s)
        self.begun.set()
        assert self.may_end.wait(TIMEOUT_S)
        raise self.error


@pytest.fixture
def starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The default directory of the node. Its start lock is held, as by another process that starts the node."""
    aeron_dir = tmp_path / "driver"
    monkeypatch.setenv("AERON_SPARK_AERON_DIR", str(aeron_dir))
    paths = node.local_node_paths(aeron_dir)
    paths.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    with FileLock(paths.start_lock) as lock:
        assert lock.try_acquire()
        yield aeron_dir


def test_connect_does_not_wait_for_the_start_of_the_node_beyond_its_timeout(
    starting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: ``connect(timeout=2)`` waited up to ten minutes for another process that started the node."""
    real: Callable[..., Any] = node.ensure

    def ensure(*arguments: Any, **keywords: Any) -> Any:
        assert keywords["timeout"] <= 0.2, "the start of the node has more time than the connect"
        return real(*arguments, **keywords)

    monkeypatch.setattr(node, "ensure", ensure)
    with pytest.raises(WaitTimeout, match="for another process to start the node in "):
        opening.connect(ADDRESS, store=MemoryPeerStore(), aeron_dir=str(starting), timeout=0.2)


@pytest.mark.parametrize("timeout", [30.0, None, 0.0])
def test_the_start_of_the_node_has_the_time_of_the_connect_or_all_of_it(
    timeout: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts()
    starts.may_end.set()
    monkeypatch.setattr(node, "ensure", starts.ensure)
    started = time.monotonic()
    with pytest.raises(NoNodeError):
        opening.connect(ADDRESS, store=MemoryPeerStore(), ipc="never", timeout=timeout)
    if timeout:
        assert 30.0 >= starts.seconds[0] >= 30.0 - (time.monotonic() - started)
    else:
        assert starts.seconds == [node.START_TIMEOUT]


# ``wait=False``


def test_connect_without_waiting_returns_before_the_node_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: ``connect(wait=False)`` took 1.3 s, and as long as the start of a node, because it opened both."""
    starts = Starts()
    monkeypatch.setattr(node, "ensure", starts.ensure)
    with opening.connect(ADDRESS, store=MemoryPeerStore(), wait=False) as client:
        assert client.state == "connecting"
        assert starts.begun.wait(TIMEOUT_S)
        assert (starts.seconds, starts.waits) == ([node.START_TIMEOUT], [0.0])
        with pytest.raises(WaitTimeout, match="goes on to try until it is closed"):
            client.connect(0.01)
    starts.may_end.set()


def test_an_error_of_this_machine_stops_a_client_that_did_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = Starts(SetupError("no Java was found"))
    monkeypatch.setattr(node, "ensure", starts.ensure)
    with opening.connect(ADDRESS, store=MemoryPeerStore(), wait=False) as client:
        stopped: Future[AeronSparkError] = Future()
        client.on_stopped(stopped.set_result)
        starts.may_end.set()
        assert str(stopped.result(TIMEOUT_S)).startswith("no Java was found")
        assert (client.state, client.error) == ("stopped", stopped.result())
        with pytest.raises(SetupError, match="no Java was found"):
            client.connect(TIMEOUT_S)


def test_a_client_that_did_not_wait_tries_again_while_no_driver_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aeron_spark.endpoint.client_endpoint.REOPEN_SECONDS", 0.001)
    starts = Starts(ConnectError("no media driver runs in /nowhere"))
    starts.may_end.set()
    monkeypatch.setattr(node, "ensure", starts.ensure)
    with opening.connect(ADDRESS, store=MemoryPeerStore(), wait=False) as client:
        wait_for(lambda: len(starts.seconds) > 2, "further attempts")
        assert client.state == "connecting"
        assert isinstance(client.error, ConnectError)
        with pytest.raises(ConnectError, match="no media driver runs in /nowhere"):
            client.connect(0.01)


@pytest.mark.parametrize(
    ("address", "options"), [("no port", {}), (ADDRESS, {"no_such_option": 1}), (ADDRESS, {"ipc": "sometimes"})]
)
def test_a_wrong_argument_is_refused_without_waiting(address: str, options: Any) -> None:
    with pytest.raises(OptionError):
        opening.connect(address, store=MemoryPeerStore(), wait=False, **options)

"""``aeron_spark.connect`` without a media driver; no test here starts one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aeron_spark import node
from aeron_spark.client import opening
from aeron_spark.errors import WaitTimeout
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.node.locks import FileLock

ADDRESS = "127.0.0.1:20121"


class NoNodeError(Exception):
    """Ends a connect before it uses the media driver."""


class Handle:
    """Replaces the handle of a node."""

    aeron_dir = "/nowhere"

    def close(self) -> None:
        pass

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Starts:
    """Replaces ``node.ensure``: records the time that each call has, and fails the second call."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def ensure(self, aeron_dir: str | None, *, timeout: float = node.START_TIMEOUT, wait_s: float) -> Any:
        self.seconds.append(timeout)
        if len(self.seconds) == 2:
            raise NoNodeError
        return Handle()


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


def test_each_wait_of_connect_for_the_node_has_the_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = Starts()
    monkeypatch.setattr(node, "ensure", starts.ensure)
    started = time.monotonic()
    with pytest.raises(NoNodeError):
        opening.connect(ADDRESS, store=MemoryPeerStore(), ipc="never", timeout=30.0)
    assert 30.0 >= starts.seconds[0] >= starts.seconds[1] >= 30.0 - (time.monotonic() - started)


@pytest.mark.parametrize("timeout", [None, 0.0])
def test_connect_without_a_timeout_waits_for_the_whole_start_of_the_node(
    timeout: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts()
    monkeypatch.setattr(node, "ensure", starts.ensure)
    with pytest.raises(NoNodeError):
        opening.connect(ADDRESS, store=MemoryPeerStore(), ipc="never", timeout=timeout)
    assert starts.seconds == [node.START_TIMEOUT] * 2

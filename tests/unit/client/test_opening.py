"""``aeron_spark.connect`` before there is a media driver: nothing here starts one."""

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
    """Ends a connect where it would use the media driver."""


class Handle:
    """Stands for the handle on a node."""

    aeron_dir = "/nowhere"

    def close(self) -> None:
        pass

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Starts:
    """Stands for ``node.ensure``: it records the time that each call has, and fails the second call."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def ensure(self, aeron_dir: str | None, *, timeout: float = node.START_TIMEOUT) -> Any:
        self.seconds.append(timeout)
        if len(self.seconds) == 2:
            raise NoNodeError
        return Handle()


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[Path]:
    """The directory of a node that another process seems to start, for as long as the test runs."""
    aeron_dir = tmp_path / "driver"
    places = node.local_node_paths(aeron_dir)
    places.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    with FileLock(places.start_lock) as lock:
        assert lock.try_acquire()
        yield aeron_dir


def test_finding_a_connect_does_not_wait_for_the_start_of_the_node_longer_than_its_time(
    starting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding: ``connect(timeout=2)`` waited up to ten minutes for another process that started the node."""
    real: Callable[..., Any] = node.ensure

    def ensure(*given: Any, **named: Any) -> Any:
        assert named["timeout"] <= 0.2, "the start of the node has more time than the connect"
        return real(*given, **named)

    monkeypatch.setattr(node, "ensure", ensure)
    with pytest.raises(WaitTimeout, match="for another process to start the node in "):
        opening.connect(ADDRESS, store=MemoryPeerStore(), aeron_dir=str(starting), timeout=0.2)


def test_every_wait_of_a_connect_for_the_node_has_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = Starts()
    monkeypatch.setattr(node, "ensure", starts.ensure)
    begun = time.monotonic()
    with pytest.raises(NoNodeError):
        opening.connect(ADDRESS, store=MemoryPeerStore(), ipc="never", timeout=30.0)
    assert 30.0 >= starts.seconds[0] >= starts.seconds[1] >= 30.0 - (time.monotonic() - begun)


@pytest.mark.parametrize("timeout", [None, 0.0])
def test_without_a_time_of_its_own_a_connect_waits_for_the_node_as_long_as_its_start_may_take(
    timeout: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts()
    monkeypatch.setattr(node, "ensure", starts.ensure)
    with pytest.raises(NoNodeError):
        opening.connect(ADDRESS, store=MemoryPeerStore(), ipc="never", timeout=timeout)
    assert starts.seconds == [node.START_TIMEOUT] * 2

"""Closing a server during the recovery of its streams waits only for the stream that is being recovered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from aeron_spark.errors import UsageError
from aeron_spark.server.operator import StreamCommands
from aeron_spark.server.watch import StoreHousekeeper
from aeron_spark.streams.store import StreamStore
from aeron_spark.streams.store_parts import StoreParts
from aeron_spark.streams.stream import Stream
from tests.stream_requests import create_request
from tests.unit.stream_client import joined
from tests.unit.stream_client.recorded import ADDRESS

NAMES = ("a", "b", "c")


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a store with three streams, closed by its server."""
    world = joined.World(tmp_path / "streams", monkeypatch)
    assert world.server is not None
    for name in NAMES:
        world.server.store.create(create_request(name, 1, segment_bytes=1 << 16))
    world.server.store.close()
    yield tmp_path / "streams"
    world.close()


class Recovery:
    """Pauses the recovery of each stream until ``resume`` is set, and records the recovered and the closed streams."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started = threading.Event()
        self.resume = threading.Event()
        self.recovered: list[str] = []
        self.closed: list[str] = []
        recover: Callable[..., None] = Stream.recover
        close: Callable[..., None] = Stream.close

        def paused_recover(stream: Stream, recordings: Any = None) -> None:
            self.started.set()
            assert self.resume.wait(30)
            recover(stream, recordings)
            self.recovered.append(stream.definition.name)

        def recorded_close(stream: Stream, **options: Any) -> None:
            self.closed.append(stream.definition.name)
            close(stream, **options)

        monkeypatch.setattr(Stream, "recover", paused_recover)
        monkeypatch.setattr(Stream, "close", recorded_close)


def test_closing_a_server_ends_a_recovery_after_the_current_stream(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: SIGTERM of a server waited for the recovery of all streams; ``close`` waits for the running one."""
    recovery = Recovery(monkeypatch)
    reported: list[BaseException] = []
    housekeeper = StoreHousekeeper(
        lambda ending, progress: StreamStore(stored, StoreParts(ADDRESS), is_closing=ending, progress=progress),
        lambda connection, error: reported.append(error),
    )
    with ThreadPoolExecutor(2) as threads:
        recovering = threads.submit(housekeeper.recover)
        assert recovery.started.wait(10)
        closing = threads.submit(housekeeper.close)
        try:
            assert housekeeper._ending.wait(10)
        finally:
            recovery.resume.set()
        closing.result(10)
        with pytest.raises(UsageError, match="the server was closed while it recovered its streams"):
            recovering.result(10)
    assert housekeeper.progress == (1, 3)
    assert recovery.recovered == recovery.closed == ["a"]
    assert reported == []
    with pytest.raises(UsageError, match="the server is closed"):
        _ = housekeeper.store


def test_after_an_ended_recovery_the_next_server_can_recover_the_store(stored: Path) -> None:
    answers = iter([False, True])
    with pytest.raises(UsageError, match="the server was closed while it recovered its streams"):
        StreamStore(stored, StoreParts(ADDRESS), is_closing=lambda: next(answers))
    with StreamStore(stored, StoreParts(ADDRESS)) as store:
        assert [stream.definition.name for stream in store.all()] == list(NAMES)


def test_the_operator_sees_each_stream_with_its_state_once_the_store_is_open(stored: Path) -> None:
    opened: list[StreamStore] = []
    commands = StreamCommands(lambda: opened[0] if opened else None)
    assert commands.list_streams({}) == {"streams": []}
    (stored / "b" / "definition.json").write_bytes(b"damaged")
    with StreamStore(stored, StoreParts(ADDRESS)) as store:
        opened.append(store)
        assert [(one.name, one.state, one.partitions, one.committed_bytes) for one in commands.reports()] == [
            ("a", "ok", 1, 0), ("b", "damaged", 0, 0), ("c", "ok", 1, 0),
        ]  # fmt: skip

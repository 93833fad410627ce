"""The server's store of streams while it is opened: closing the server does not wait for the whole of a recovery."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from aeron_spark.errors import UsageError
from aeron_spark.server.stream_service import StreamKeeper
from aeron_spark.streams.store import Streams
from aeron_spark.streams.stream import Stream
from tests.unit.stream_client import joined
from tests.unit.stream_client.recorded import ADDRESS

NAMES = ("a", "b", "c")


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with three streams that a server has left."""
    made = joined.World(tmp_path / "streams", monkeypatch)
    assert made.server is not None
    for name in NAMES:
        made.server.store.create(name, 1, term_bytes=1 << 16)
    made.server.store.close()
    yield tmp_path / "streams"
    made.close()


class Recovery:
    """Holds the recovery of each stream up until it may go on, and records which streams were recovered and closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.may_go_on = threading.Event()
        self.recovered: list[str] = []
        self.closed: list[str] = []
        recover: Callable[..., None] = Stream.recover
        close: Callable[..., None] = Stream.close

        def held_recover(stream: Stream, recordings: Any = None) -> None:
            self.begun.set()
            assert self.may_go_on.wait(30)
            recover(stream, recordings)
            self.recovered.append(stream.definition.name)

        def noted_close(stream: Stream, **named: Any) -> None:
            self.closed.append(stream.definition.name)
            close(stream, **named)

        monkeypatch.setattr(Stream, "recover", held_recover)
        monkeypatch.setattr(Stream, "close", noted_close)


def test_finding_c11_closing_a_server_ends_a_recovery_after_the_stream_that_it_is_at(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding C11: SIGTERM of a server waited for the recovery of all streams: ``close`` waits for the running one."""
    recovery = Recovery(monkeypatch)
    reported: list[BaseException] = []
    keeper = StreamKeeper(
        lambda ending: Streams(stored, ADDRESS, ending=ending), lambda connection, error: reported.append(error)
    )
    keeper.open_soon()
    assert recovery.begun.wait(10)
    with ThreadPoolExecutor(1) as threads:
        closing = threads.submit(keeper.close)
        try:
            assert keeper._ending.wait(10)
        finally:
            recovery.may_go_on.set()
        closing.result(10)
    assert recovery.recovered == recovery.closed == ["a"]
    assert reported == []
    with pytest.raises(UsageError, match="the server is closed"):
        _ = keeper.store


def test_a_recovery_that_ended_early_leaves_the_folder_to_the_next_server(stored: Path) -> None:
    looks = iter([False, True])
    with pytest.raises(UsageError, match="the server was closed while it recovered its streams"):
        Streams(stored, ADDRESS, ending=lambda: next(looks))
    with Streams(stored, ADDRESS) as again:
        assert [stream.definition.name for stream in again.all()] == list(NAMES)

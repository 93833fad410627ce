"""A task of the sink waits for an archive that acknowledged an earlier task of its process, and for no other one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from aeron_spark.aeron.recording import ArchiveAddress
from aeron_spark.direct import appender as direct
from aeron_spark.errors import ConnectError
from aeron_spark.log import restarts
from aeron_spark.log.writing import Source
from aeron_spark.options import WriteOptions

ADDRESS = ArchiveAddress("there", "/nowhere", "aeron:ipc")


class Archive:
    """An archive that does not answer the next ``away`` calls, and the published values."""

    def __init__(self) -> None:
        self.away = 0
        self.asked: list[bool] = []  # whether the archive was needed, of each look at it
        self.published: list[bytes] = []
        self.max_message_bytes = 1_000

    def ask(self) -> None:
        if self.away:
            self.away -= 1
            raise ConnectError("no archive answered")

    def acknowledging(self, *_: object, is_needed: bool) -> ArchiveAddress:
        self.asked.append(is_needed)
        self.ask()
        return ADDRESS

    def recorded(self) -> bool:
        self.ask()
        return True

    def connect(self) -> None:
        self.ask()

    def publish_values(self, values: pa.Array[Any], reserved: object) -> None:
        self.published += values.to_pylist()


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> Archive:
    one = Archive()
    monkeypatch.setattr(direct, "archives_of", lambda _: SimpleNamespace(aeron_dir="/nowhere", archives=(ADDRESS,)))
    monkeypatch.setattr(direct, "acknowledging_archive", one.acknowledging)
    monkeypatch.setattr(direct, "ArchiveLog", lambda _: one)
    monkeypatch.setattr(direct, "Publisher", lambda *_: one)
    monkeypatch.setattr(direct, "ACKNOWLEDGED", set())
    monkeypatch.setattr(restarts, "PAUSE_S", 0)
    return one


def write(value: bytes, **more: str) -> None:
    options = {"channel": "aeron:ipc", "streamId": "1", "aeronDir": "/nowhere", "archive": "aeron:ipc", **more}
    appender = direct.DirectAppender(WriteOptions.parse(options, streaming=True), Source("writer"))
    appender.raw(pa.array([value]))


@pytest.mark.parametrize("away", range(1, 6))
def test_a_restart_of_the_archive_is_waited_out_before_the_first_row_of_a_task(archive: Archive, away: int) -> None:
    write(b"first")
    archive.away = away
    write(b"second")
    assert archive.published == [b"first", b"second"]
    assert archive.asked[0] is False
    assert all(archive.asked[1:])


def test_the_first_connection_is_not_waited_for(archive: Archive) -> None:
    archive.away = 1
    with pytest.raises(ConnectError, match="no archive answered"):
        write(b"first")
    assert archive.away == 0
    assert archive.published == []


def test_the_error_after_the_timeout_has_the_archive_and_the_time(archive: Archive) -> None:
    write(b"first")
    archive.away = 1_000_000
    with pytest.raises(
        ConnectError, match=r"the archive aeron:ipc of stream 1 of aeron:ipc was away for 0\.01 s: no arch"
    ):
        write(b"second", archiveTimeout="10ms")

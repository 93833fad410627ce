"""A task of the sink waits for an archive that has acknowledged rows of it or of its process, and for no other one."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from aeron_spark.aeron.recording import ArchiveAddress
from aeron_spark.direct import writing as direct
from aeron_spark.direct.archive_recordings import this_host
from aeron_spark.errors import ConnectError
from aeron_spark.log import restarts
from aeron_spark.options import WriteOptions
from aeron_spark.spark.writer import WriteTask

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

    def publish_values(self, values: pa.Array[Any], reserved: object) -> None:
        self.ask()
        self.published += values.to_pylist()

    def wait_acknowledged(self) -> None:
        self.ask()


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


def rows(value: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": [value]})


def write_task(**more: str) -> WriteTask:
    given = {"channel": "aeron:ipc", "streamId": "1", "aeronDir": "/nowhere", "archive": "aeron:ipc", **more}
    options = WriteOptions.parse(given, streaming=False)
    return WriteTask(options, options.route, "raw", "test", this_host())


def write(value: bytes, **more: str) -> None:
    write_task(**more).write(iter([rows(value)]))


@pytest.mark.parametrize("away", range(1, 6))
def test_a_restart_of_the_archive_is_waited_out_before_the_first_row_of_a_task(archive: Archive, away: int) -> None:
    write(b"first")
    archive.away = away
    write(b"second")
    assert archive.published == [b"first", b"second"]
    assert archive.asked[0] is False
    assert all(archive.asked[1:])


@pytest.mark.parametrize("away", range(1, 6))
def test_a_restart_of_the_archive_in_a_task_is_waited_out_and_the_rows_are_published_again(
    archive: Archive, away: int
) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for value in (b"1", b"2"):
            yield rows(value)
            archive.away = away  # in the next append, then in finish()

    assert write_task().write(batches()).rows == 2
    assert archive.published == [b"1", b"1", b"2", b"1", b"2"]
    assert archive.away == 0


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

"""Tasks on another machine than the query's driver cannot use ``archive=embedded`` and are refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from aeron_spark.errors import SetupError
from aeron_spark.log.api import Range
from aeron_spark.options import DirectRoute, ReadOptions
from aeron_spark.spark import reader as reading
from aeron_spark.spark import writer as writing
from aeron_spark.spark.reader import RangePartition
from aeron_spark.spark.source import AeronDataSource

T = TypeVar("T")

REMOTE = "aeron:udp?endpoint=archive-host:8010"
REFUSAL = "archive=embedded is the archive of one machine, but this task runs on another machine than the driver"
COLUMNS = StructType([StructField("value", BinaryType())])


class ArchiveOpened(Exception):
    """The task was not refused and opens its archive."""


@pytest.fixture(autouse=True)
def replaced_open_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a read task that is not refused raise ``ArchiveOpened`` instead of starting a node."""

    def open_log(*_: object, **__: object) -> None:
        raise ArchiveOpened

    monkeypatch.setattr(reading, "open_log", open_log)


def move(task: T, monkeypatch: pytest.MonkeyPatch, host: str | None) -> T:
    """Return a task as Spark sends it to a host; without a host, the task stays on the driver's."""
    if host is not None:
        for module in (reading, writing):
            monkeypatch.setattr(module, "this_host", lambda: host)
    moved: T = pickle.loads(pickle.dumps(task))
    return moved


def options(archive: str | None, **more: str) -> dict[str, str]:
    given = {} if archive is None else {"archive": archive}
    return {"channel": "aeron:ipc", "streamid": "1001", "payload": "raw", **given, **more}


def batch_reader(given: dict[str, str]) -> Any:
    return AeronDataSource(given).reader(AeronDataSource(given).schema())


def stream_reader(given: dict[str, str]) -> Any:
    return AeronDataSource(given).streamReader(AeronDataSource(given).schema())


def batch_writer(given: dict[str, str]) -> Any:
    return AeronDataSource(given).writer(COLUMNS, False)


def stream_writer(given: dict[str, str]) -> Any:
    return AeronDataSource(given).streamWriter(COLUMNS, False)


READERS = pytest.mark.parametrize("build", [batch_reader, stream_reader])
WRITERS = pytest.mark.parametrize("build", [batch_writer, stream_writer])
WITH_EMBEDDED = pytest.mark.parametrize("archive", [None, "embedded", f"{REMOTE},embedded"])


def partition(given: dict[str, str]) -> RangePartition:
    route = ReadOptions.parse(given, streaming=False).route
    assert isinstance(route, DirectRoute)
    return RangePartition((Range("embedded/1", "fingerprint", 0, 64, 64, 65_536),), route)


@READERS
@WITH_EMBEDDED
def test_a_read_task_of_the_embedded_archive_is_refused_on_another_host(
    build: Callable[[dict[str, str]], Any], archive: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(archive)
    task = move(build(given), monkeypatch, "another host")
    with pytest.raises(SetupError) as refused:
        list(task.read(partition(given)))
    assert refused.value.what == REFUSAL
    assert "option 'archive' with its control channel, such as 'aeron:udp?endpoint=" in refused.value.remedy


@READERS
@pytest.mark.parametrize(("archive", "host"), [(REMOTE, "another host"), ("embedded", None)])
def test_a_read_task_of_a_named_archive_or_on_the_drivers_host_is_not_refused(
    build: Callable[[dict[str, str]], Any], archive: str, host: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(archive)
    task = move(build(given), monkeypatch, host)
    with pytest.raises(ArchiveOpened):
        list(task.read(partition(given)))


@WRITERS
@WITH_EMBEDDED
def test_a_write_task_of_the_embedded_archive_is_refused_on_another_host(
    build: Callable[[dict[str, str]], Any], archive: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        pytest.fail("the task took rows before it was refused")
        yield

    task = move(build(options(archive, ack="archive")), monkeypatch, "another host")
    with pytest.raises(SetupError) as refused:
        task.write(rows())
    assert refused.value.what == REFUSAL
    assert refused.value.remedy == "Name an archive that all hosts reach with option 'archive', or set ack=driver."


@WRITERS
@pytest.mark.parametrize(
    ("archive", "ack", "host"),
    [(REMOTE, "archive", "another host"), ("embedded", "driver", "another host"), ("embedded", "archive", None)],
)
def test_a_write_task_with_the_remedy_or_on_the_drivers_host_is_not_refused(
    build: Callable[[dict[str, str]], Any], archive: str, ack: str, host: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task has no rows, so it ends without an archive."""
    task = move(build(options(archive, ack=ack)), monkeypatch, host)
    assert task.write(iter(())).rows == 0

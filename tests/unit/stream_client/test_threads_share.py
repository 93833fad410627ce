"""Threads of a program share a writer: no row is lost or repeated. A reader refuses a second thread at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from aeron_spark.errors import UsageError
from aeron_spark.stream_client.reader import StreamReader
from aeron_spark.stream_client.writer import StreamWriter, Writer
from tests.unit.stream_client.joined import World
from tests.unit.stream_client.test_buffered_outcomes import offline_writer, online_writer

TIMEOUT_S = 30.0
COMMITS = 100  # of each of two threads


def in_threads(*works: Callable[[], object]) -> list[BaseException | None]:
    """Run each work in a thread, all at once; return their errors."""
    begins = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> object:
        begins.wait(TIMEOUT_S)
        return work()

    with ThreadPoolExecutor(len(works)) as threads:
        running = [threads.submit(run, work) for work in works]
        return [one.exception(TIMEOUT_S) for one in running]


def write_and_commit(out: Writer, row: Callable[[int], object]) -> Callable[[], None]:
    def work() -> None:
        for number in range(COMMITS):
            out.write(row(number))  # type: ignore[arg-type]
            out.commit()

    return work


def values(world: World) -> list[bytes]:
    found = world.committed()
    assert found is not None
    return sorted(value for partition in found for value in partition)


def sent_by(*names: str) -> list[bytes]:
    return sorted(b"%s %03d" % (name.encode(), number) for name in names for number in range(COMMITS))


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow
def test_two_threads_that_each_write_and_commit_100_rows_make_200_rows(world: World) -> None:
    """Regression: both threads returned for 200 rows, and 100 were in the stream."""
    out = StreamWriter(world.stream_session(), "s", writer_id="shared", payload="raw")
    errors = in_threads(
        write_and_commit(out, lambda n: b"a %03d" % n), write_and_commit(out, lambda n: b"b %03d" % n)
    )  # fmt: skip
    assert errors == [None, None]
    assert values(world) == sent_by("a", "b")


@pytest.mark.slow
def test_two_threads_share_a_buffered_writer(world: World, tmp_path: Path) -> None:
    """Regression: 7 to 28 of 200 rows were lost."""
    out = online_writer(world, tmp_path / "b")
    errors = in_threads(
        write_and_commit(out, lambda n: {"value": b"a %03d" % n}), write_and_commit(out, lambda n: b"b %03d" % n)
    )  # fmt: skip
    assert errors == [None, None]
    out.flush(TIMEOUT_S)
    out.close()
    assert values(world) == sent_by("a", "b")


def test_a_commit_has_the_rows_that_all_threads_wrote_before_it(world: World) -> None:
    out = StreamWriter(world.stream_session(), "s", writer_id="shared", payload="raw")
    in_threads(lambda: out.write(b"1"), lambda: out.write([b"2", b"3"]), lambda: out.write({"value": b"4"}))
    assert values(world) == []
    assert sorted([out.commit(), out.commit()]) == [-1, 0]
    assert values(world) == [b"1", b"2", b"3", b"4"]


def test_a_write_that_waits_for_room_ends_when_another_thread_closes_the_writer(tmp_path: Path) -> None:
    out = offline_writer(tmp_path / "b")
    out.write(b"x")
    out.commit()
    waits, await_space = threading.Event(), out._await_space
    out._max_bytes = out._folder.size_bytes

    def told(*arguments: object) -> None:
        waits.set()
        await_space(*arguments)  # type: ignore[arg-type]

    out._await_space = told  # type: ignore[method-assign,assignment]

    def close() -> None:
        assert waits.wait(TIMEOUT_S)
        out.close()

    out._max_bytes += 200  # the next row alone would fit
    refused, closed = in_threads(lambda: out.write(bytes(60)), close)
    assert closed is None
    assert isinstance(refused, UsageError)
    assert "the writer is closed" in str(refused)


@pytest.fixture
def reader(world: World, monkeypatch: pytest.MonkeyPatch) -> StreamReader:
    """A reader of ten batches, each with one number. The simulated archive has no bytes to read."""
    batches = iter([pa.RecordBatch.from_pydict({"value": [number]}) for number in range(10)])
    monkeypatch.setattr(StreamReader, "_read_committed", lambda _: batches)
    return StreamReader(world.stream_session(), "s", follow=True, timeout=0.0)


def numbers(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column("value").to_pylist()]


def test_a_reader_in_three_threads_gives_each_batch_to_the_first_one(reader: StreamReader) -> None:
    """Regression: each thread got each batch."""
    first = iter(reader)
    found = numbers([next(first)])
    for error in in_threads(lambda: list(reader), lambda: next(iter(reader)), lambda: next(first)):
        assert isinstance(error, UsageError), error
        assert "reads with this reader" in str(error)
    assert found + numbers(first) == list(range(10))
    assert in_threads(lambda: list(reader)) == [None]  # the iteration has ended


def test_another_thread_reads_on_when_the_thread_of_an_iteration_has_ended(reader: StreamReader) -> None:
    begun: list[Iterator[pa.RecordBatch]] = []
    assert in_threads(lambda: begun.append(iter(reader)) or next(begun[0])) == [None]
    assert numbers(reader) == list(range(1, 10))
    assert list(begun[0]) == []


def test_a_further_iteration_of_a_thread_ends_the_one_before(reader: StreamReader) -> None:
    """Regression: the outer one of two nested loops repeated rows that the inner one had read."""
    outer = iter(reader)
    assert numbers([next(outer)]) == [0]
    assert numbers(reader) == list(range(1, 10))
    assert list(outer) == []

"""The commits of a ``WriteTask``, over a writer in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from aeron_spark.errors import RefusedError
from aeron_spark.log.writing import Appender, Source
from aeron_spark.options import WriteOptions
from aeron_spark.spark import writer as writing
from aeron_spark.spark.writer import NONE, Progress, WriteTask, WrittenRows, token_of
from aeron_spark.wire.stream_requests import Committed, LastCommitted, StagedPart, Transaction

QUERY, RUN, SERVER = "the query", "run-1", "127.0.0.1:20121"
KEY = "aeron-spark:AS4Oa1S2Mu0vMDh7uNmzIoNS3Y9cElKNIYjhuLBwKQk"


class Writer:
    """A ``LogWriter`` whose server has committed the micro-batches up to ``last``.

    ``overtaken_by``: the last micro-batch of a run that commits while this run does.
    """

    has_transactions = True
    has_schema = True
    servers = (SERVER,)

    def __init__(self, last: int, overtaken_by: int | None = None) -> None:
        self.last = last
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self._overtaken_by = overtaken_by

    def check_other_host(self) -> None:
        pass

    def server_of(self, transaction: Transaction) -> str:
        return SERVER

    def has_reached(self, server: str) -> bool:
        raise NotImplementedError

    def check_answers(self, transaction: Transaction, server: str) -> None:
        raise NotImplementedError

    def begin(self, transaction: Transaction, source: Source, payload: str) -> Appender:
        raise NotImplementedError

    def commit(
        self, transaction: Transaction, server: str, parts: Sequence[StagedPart], rows: int, token: str = ""
    ) -> Committed:
        if self._overtaken_by is not None:
            self.last = self._overtaken_by
            return Committed(True, (), "")
        self.last = transaction.number
        self.committed.append(transaction.number)
        return Committed(False, (), "")

    def abort(self, transaction: Transaction, server: str) -> None:
        self.aborted.append(transaction.number)

    def last_committed(self, transaction: Transaction, server: str) -> LastCommitted:
        return LastCommitted(self.last, token_of(self.last, SERVER, RUN, {SERVER: Progress(self.last)}))


@pytest.fixture
def task() -> WriteTask:
    given = {"server": SERVER, "stream": "flights", "serverkey": KEY, "payload": "raw"}
    options = WriteOptions.parse(given, streaming=True)
    return WriteTask(options, options.route, "raw", "this write", "this host")


def commit(task: WriteTask, writer: Writer, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit a micro-batch whose tasks had no rows."""

    @contextmanager
    def open_writer(*_: Any) -> Iterator[Writer]:
        yield writer

    monkeypatch.setattr(writing, "open_writer", open_writer)
    task.commit([WrittenRows(Transaction(QUERY, RUN, batch, producer=QUERY), SERVER, (), 0)])


def test_a_micro_batch_that_follows_the_last_one_is_committed(task: WriteTask, monkeypatch: pytest.MonkeyPatch) -> None:
    for writer, batch in ((Writer(NONE), 0), (Writer(6), 7)):
        commit(task, writer, batch, monkeypatch)
        assert (writer.committed, writer.aborted) == ([batch], [])


def test_a_micro_batch_that_is_committed_is_not_committed_again(
    task: WriteTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(7)
    commit(task, writer, 7, monkeypatch)
    assert (writer.committed, writer.aborted) == ([], [7])


def test_a_micro_batch_before_the_last_committed_one_is_refused(
    task: WriteTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(7)
    with pytest.raises(RefusedError, match="micro-batch 7 of that query is committed"):
        commit(task, writer, 6, monkeypatch)
    assert (writer.committed, writer.aborted) == ([], [6])


def test_a_micro_batch_that_another_process_commits_at_the_same_time_is_accepted(
    task: WriteTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(6, overtaken_by=7)
    commit(task, writer, 7, monkeypatch)
    assert writer.last == 7


def test_a_micro_batch_is_refused_if_another_process_commits_a_later_one_at_the_same_time(
    task: WriteTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server says that it has the micro-batch, but these rows may be other ones: an older checkpoint's."""
    with pytest.raises(RefusedError, match="micro-batch 8 of that query is committed"):
        commit(task, Writer(6, overtaken_by=8), 7, monkeypatch)

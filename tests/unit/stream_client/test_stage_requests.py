"""Requests of a writer that are repeated, and commits that would leave rows out (finding C1)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

import pyarrow as pa
import pytest

from aeron_spark.errors import (
    ConnectError,
    DataFormatError,
    EndedError,
    RefusedError,
    StillWorking,
    TransportError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.log.writing import Source, Transaction
from aeron_spark.server.stream_service import RunningCommits
from aeron_spark.stream_client.staging import AppenderState, ServerAppender
from aeron_spark.stream_client.transactions import begin, commit, commit_empty
from aeron_spark.stream_client.writer import StreamWriter
from aeron_spark.streams.model import CommitOutcome
from aeron_spark.wire.stream_rpc import FinishStage, OpenStage, StageFinished
from tests.unit.stream_client.joined import Fault, World

ONE = Transaction("w", "r", 0)
SECONDS = 10.0


def appender(world: World, values: list[bytes]) -> ServerAppender:
    made = ServerAppender(
        world.stream_session(), "s", ONE, task=0, partition=0, source=Source("w", 0, 0), payload="raw"
    )  # fmt: skip
    made.raw(pa.array(values, pa.binary()))
    return made


def service(world: World) -> Any:
    assert world.session is not None
    return world.session.service


def test_finish_gives_the_same_parts_again(world: World) -> None:
    """Finding C1."""
    one = appender(world, [b"a", b"b"])
    parts = one.finish()
    assert [part.rows for part in parts] == [2]
    assert one.finish() == parts
    assert one.state is AppenderState.FINISHED
    with pytest.raises(UsageError, match="takes no more rows"):
        one.raw(pa.array([b"c"], pa.binary()))
    one.discard()
    assert one.finish() == parts


def test_finish_asks_again_where_no_response_came(world: World) -> None:
    """Finding C1."""
    one = appender(world, [b"a"])
    world.away = 100_000.0
    world.faults.append(Fault.STOP)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            one.finish()
        assert one.state is AppenderState.CLOSING
    world.calm()
    (part,) = one.finish()
    assert commit(world.stream_session(), "s", ONE, [part], 1).repeated is False
    assert world.committed() == [[b"a"], []]


def test_finish_raises_the_same_error_again(world: World) -> None:
    """Finding C1: what failed for good is never taken for nothing to commit."""
    one = appender(world, [b"a"])
    world.fail(Fault.FULL_DISK)
    said = set()
    for _ in range(3):
        with pytest.raises(TransportError) as caught:
            one.finish()
        said.add(str(caught.value))
        assert one.state is AppenderState.FAILED
        world.calm()
    assert len(said) == 1


@pytest.mark.parametrize("fault", [Fault.BREAK, Fault.BREAK_AFTER, Fault.KILL, Fault.KILL_AFTER])
def test_a_stage_is_opened_over_a_new_bulk_link_where_the_connection_was_lost(world: World, fault: Fault) -> None:
    """After a reconnection the server does not know the bulk link that the repeated OpenStage request names."""
    session = world.stream_session()
    for number in (0, 1):  # the second transaction finds the idle link of the first one
        transaction = Transaction("w", "r", number)
        if number == 1:
            world.faults.append(fault)
        stage = ServerAppender(session, "s", transaction, task=0, partition=0, source=Source("w"), payload="raw")
        stage.raw(pa.array([b"a"], pa.binary()))
        commit(session, "s", transaction, stage.finish(), 1)
    assert world.committed() == [[b"a", b"a"], []]


def test_opening_a_stage_fails_at_the_deadline_where_each_bulk_link_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = world.stream_session()

    def refuse(request: object, *, timeout: float) -> None:
        raise EndedError("the connection has no bulk link 7")

    monkeypatch.setattr(session, "call", refuse)
    deadline = session.deadline(5.0, "the server")
    stage = ServerAppender(
        session, "s", ONE, task=0, partition=0, source=Source("w"), payload="raw", deadline=deadline
    )  # fmt: skip
    with pytest.raises(EndedError, match="has no bulk link 7"):
        stage.raw(pa.array([b"a"], pa.binary()))
    assert not deadline.remaining()
    assert session.opened > 1
    assert session.running == 0


def test_opening_a_stage_fails_at_once_where_the_client_is_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = world.stream_session()

    def close_and_fail(request: object, *, timeout: float) -> None:
        session.client.closed = True  # type: ignore[misc]
        raise EndedError("the connection was closed")

    monkeypatch.setattr(session, "call", close_and_fail)
    with pytest.raises(EndedError, match="was closed"):
        ServerAppender(session, "s", ONE, task=0, partition=0, source=Source("w"), payload="raw").raw(
            pa.array([b"a"], pa.binary())
        )
    assert session.opened == 1


def test_the_server_answers_finish_stage_again(world: World) -> None:
    """Finding C1."""
    (part,) = appender(world, [b"a", b"b"]).finish()
    request = FinishStage("s", part.id, part.bytes, 1.0)
    again = service(world).execute(request)
    assert again == StageFinished(part.rows, part.bytes, part.crc)
    world.kill()
    world.connect(100.0)  # the next server has it too
    assert service(world).execute(request) == again


def test_the_server_answers_finish_stage_with_the_same_error_again(world: World) -> None:
    """Finding C1."""
    world.connect(1.0)
    bulk_link = world.bulk_link()
    request = OpenStage("s", "w", "r", 0, False, "", 0, 0, "raw", b"", bulk_link.number, 1)
    opened = service(world).execute(request)
    assert service(world).execute(request) == opened
    with pytest.raises(TimeoutError, match="0 of 100 bytes"):
        service(world).execute(FinishStage("s", opened.stage, 100, 1.0))
    bulk_link.close()
    said = set()
    for _ in range(3):
        with pytest.raises(TransportError) as caught:
            service(world).execute(FinishStage("s", opened.stage, 100, 1.0))
        said.add(str(caught.value))
    assert len(said) == 1
    with pytest.raises(RefusedError, match="unknown stage"):
        service(world).execute(FinishStage("s", "another", 100, 1.0))


def test_a_commit_that_names_no_part_is_refused(world: World) -> None:
    """Finding C1."""
    session = world.stream_session()
    begin(session, "s", ONE)
    for rows in (0, 3):
        with pytest.raises(RefusedError, match=f"names 0 stages with 0 rows, but its writer wrote {rows} rows"):
            commit(session, "s", ONE, [], rows)
    assert begin(session, "s", ONE)[0] == -1


def test_a_commit_whose_parts_have_fewer_rows_than_its_writer_is_refused(world: World) -> None:
    """Finding C1."""
    parts = appender(world, [b"a", b"b"]).finish()
    for rows in (1, 3):
        with pytest.raises(RefusedError, match=f"names 1 stages with 2 rows, but its writer wrote {rows} rows"):
            commit(world.stream_session(), "s", ONE, parts, rows)
    assert world.committed() == [[], []]
    assert commit(world.stream_session(), "s", ONE, parts, 2).repeated is False
    assert world.committed() == [[b"a", b"b"], []]


def test_a_transaction_without_rows_is_committed_by_a_request_of_its_own(world: World) -> None:
    """Finding C1: a micro-batch without rows."""
    session = world.stream_session()
    begin(session, "s", ONE)
    assert commit_empty(session, "s", ONE).repeated is False
    assert commit_empty(session, "s", ONE).repeated is True
    assert begin(session, "s", ONE)[0] == 0


def test_a_write_that_failed_is_not_in_the_transaction_and_the_rest_of_it_is(world: World) -> None:
    """Finding C1."""
    out = StreamWriter(world.stream_session(), "s", writer_id="w", payload="raw", timeout=4.0, partition=0)
    out.write([b"a", b"b"])
    world.away = 100.0
    for fault in (Fault.KILL, Fault.CUT_BRANCH, Fault.STOP):
        world.faults.extend([fault, *[Fault.LOSE] * 100])
        with pytest.raises((ConnectError, WaitTimeout)):
            out.write([b"not"] * 20, partition=1)
        world.calm()
    with pytest.raises(DataFormatError):
        out.write([b"x" * 9_000], partition=0)
    out.write(b"c")
    assert out.commit() == 0
    assert world.committed() == [[b"a", b"b", b"c"], []]


def test_a_transaction_that_is_too_large_to_be_kept_and_was_lost_can_only_be_aborted(world: World) -> None:
    """Finding C1."""
    out = StreamWriter(world.stream_session(), "s", writer_id="w", payload="raw", timeout=4.0, memory_bytes=10)
    out.write([b"a" * 20])
    world.kill()
    for call in (out.commit, lambda: out.write(b"b"), out.commit):
        with pytest.raises(TransportError, match=r"too many to be sent again\. Call abort\(\)"):
            call()
    out.abort()
    out.write(b"c")
    assert out.commit() == 0
    assert sorted(world.committed() or []) == [[], [b"c"]]


def test_rows_are_not_added_to_a_transaction_that_may_be_committed(world: World) -> None:
    """Finding C1."""
    out = StreamWriter(world.stream_session(), "s", writer_id="w", payload="raw", timeout=4.0, partition=0)
    out.write(b"a")
    world.away = 100.0
    world.faults.extend([Fault.NONE, Fault.STOP])
    with pytest.raises(TimeoutError):
        out.commit()
    with pytest.raises(TimeoutError, match="transaction 0 takes no more rows"):
        out.write(b"b")
    world.calm()
    assert out.commit() == 0
    out.write(b"b")
    assert out.commit() == 1
    assert world.committed() == [[b"a", b"b"], []]


def test_abort_says_that_a_transaction_is_committed_whose_commit_failed(world: World) -> None:
    """Finding C1."""
    out = StreamWriter(world.stream_session(), "s", writer_id="w", payload="raw", timeout=4.0, partition=0)
    out.write(b"a")
    world.away = 100.0
    world.faults.extend([Fault.NONE, Fault.LOSE_RESPONSE, Fault.STOP])
    with pytest.raises(TimeoutError):
        out.commit()
    with pytest.raises(TimeoutError):
        out.abort()  # the server does not say
    world.calm()
    with pytest.raises(RefusedError, match="transaction 0 of writer 'w' is in the stream"):
        out.abort()
    assert out.last == 0
    out.abort()
    out.write(b"b")
    assert out.commit() == 1
    assert world.committed() == [[b"a", b"b"], []]


def test_a_transaction_that_was_aborted_is_not_committed_later(world: World) -> None:
    """Finding C1: a commit that was on its way when abort() returned."""
    out = StreamWriter(world.stream_session(), "s", writer_id="w", payload="raw", timeout=4.0, partition=0)
    out.write(b"a")
    world.faults.extend([Fault.NONE, Fault.DELAY, *[Fault.LOSE] * 20])
    with pytest.raises(TimeoutError):
        out.commit()
    assert world.server is not None
    late = [(10**9, work) for _, work in world.server.delayed]
    assert late
    world.server.delayed = late  # it comes after everything else
    world.faults.clear()
    out.abort()
    out.write(b"b")
    number = out.commit()
    world.calm()
    assert world.committed() == [[b"b"], []]
    assert out.last == number


class Commit:
    """A commit at work in a thread, and a repetition of it that waits for it."""

    def __init__(self, outcome: CommitOutcome | Exception) -> None:
        self.commits = RunningCommits(self._wait)
        self.results: list[object] = []
        self._outcome = outcome
        self._at_work, self._waits, self._go_on = threading.Event(), threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in (self._work, self._again)]

    def begin(self) -> None:
        self._threads[0].start()
        assert self._at_work.wait(SECONDS)

    def repeat_and_end(self) -> None:
        self._threads[1].start()
        assert self._waits.wait(SECONDS)
        self._go_on.set()
        for thread in self._threads:
            thread.join(SECONDS)
            assert not thread.is_alive()

    def _wait(self, running: Future[CommitOutcome], seconds: float) -> None:
        self._waits.set()
        wait([running], seconds)

    def _work(self) -> CommitOutcome:
        self._at_work.set()
        assert self._go_on.wait(SECONDS)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    def _again(self) -> CommitOutcome:
        raise AssertionError("the commit was begun a second time")

    def _run(self, work: Callable[[], CommitOutcome]) -> None:
        try:
            self.results.append(self.commits.run("a", work, SECONDS))
        except Exception as error:
            self.results.append(error)


def test_a_repeated_commit_waits_for_the_one_at_work() -> None:
    """Finding C1: for its result, or hears that it is at work."""
    one = Commit(CommitOutcome(False, [7], ""))
    one.begin()
    with pytest.raises(StillWorking):
        one.commits.run("a", one._again, 0.0)
    one._waits.clear()
    assert one.commits.run("b", lambda: CommitOutcome(True, [], ""), 0.0).is_repeated
    one.repeat_and_end()
    assert one.results == [CommitOutcome(False, [7], "")] * 2
    assert one.commits.run("a", lambda: CommitOutcome(True, [], ""), 0.0).is_repeated


@pytest.mark.parametrize("error", [TransportError("the disk is full"), WaitTimeout("the archive says nothing")])
def test_a_repeated_commit_hears_the_error_of_the_one_at_work(error: Exception) -> None:
    """Finding C1."""
    one = Commit(error)
    one.begin()
    one.repeat_and_end()
    assert one.results == [error, error]

"""A program stores its position in a source as the token of its transactions, and continues there after a restart."""

from __future__ import annotations

import pytest

from aeron_spark.errors import RefusedError, UsageError, WaitTimeout
from aeron_spark.stream_client.writer import StreamWriter
from aeron_spark.wire.stream_requests import CommitEmptyTransaction, CommitTransaction
from tests.unit.stream_client.faults import Done, Outage
from tests.unit.stream_client.joined import World

ROWS = [b"%d" % n for n in range(9)]


def writer(world: World, writer_id: str | None = "w") -> StreamWriter:
    return StreamWriter(world.stream_session(), "s", writer_id=writer_id, payload="raw", timeout=4.0, partition=0)


def run_program(world: World, rows: int) -> StreamWriter:
    """Write the next rows of a source, from the last token on, and stop as if the process were killed."""
    out = writer(world)
    position = int(out.last_token or 0)
    out.write({"value": row} for row in ROWS[position : position + rows])
    out.commit(str(position + rows))
    return out


def test_a_restarted_program_continues_after_its_last_transaction(world: World) -> None:
    for run in range(3):
        out = run_program(world, 3)
        assert (out.last, out.last_token) == (run, str(3 * run + 3))
    assert world.committed() == [ROWS, []]


@pytest.mark.parametrize("done", [Done.NOW, Done.NEVER])
def test_a_program_that_ends_in_an_outage_of_its_commit_writes_each_row_once(world: World, done: Done) -> None:
    run_program(world, 3)
    world.downtime_s = 60.0
    world.outage = Outage(CommitTransaction, done)
    with pytest.raises(WaitTimeout):
        run_program(world, 3)
    world.end_faults()
    assert run_program(world, 3).last_token == ("9" if done is Done.NOW else "6")
    assert world.committed() == [ROWS[: 9 if done is Done.NOW else 6], []]


def test_a_fenced_program_neither_writes_nor_changes_the_token(world: World) -> None:
    first = run_program(world, 3)
    first.write(b"stale")
    second = run_program(world, 3)
    for _ in range(2):
        with pytest.raises(RefusedError, match=r"is fenced|not by this writer"):
            first.commit("stale")
        assert (first.last, first.last_token) == (0, "3")
    assert (second.last, second.last_token) == (1, "6")
    assert writer(world).last_token == "6"
    assert world.committed() == [ROWS[:6], []]


def test_a_repeated_commit_keeps_the_token_of_the_first_call(world: World) -> None:
    out = writer(world)
    out.write(b"a")
    world.downtime_s = 60.0
    world.outage = Outage(CommitTransaction, Done.NOW)
    with pytest.raises(WaitTimeout):
        out.commit("first")
    world.end_faults()
    assert (out.last, out.last_token) == (-1, "")
    with pytest.raises(UsageError, match=r"transaction 0 cannot get the token 'second'.*'first'"):
        out.commit("second")
    assert out.commit() == 0
    assert (out.last, out.last_token, writer(world).last_token) == (0, "first", "first")
    assert world.committed() == [[b"a"], []]


def test_an_abort_that_finds_the_transaction_committed_gives_its_token(world: World) -> None:
    out = writer(world)
    out.write(b"a")
    world.downtime_s = 60.0
    world.outage = Outage(CommitTransaction, Done.NOW)
    with pytest.raises(WaitTimeout):
        out.commit("after a")
    world.end_faults()
    with pytest.raises(RefusedError, match="is in the stream"):
        out.abort()
    assert (out.last, out.last_token) == (0, "after a")


@pytest.mark.parametrize("writer_id", ["w", None])
@pytest.mark.parametrize("done", [Done.NOW, Done.NEVER])
def test_a_token_without_rows_is_a_transaction(world: World, writer_id: str | None, done: Done) -> None:
    """A program that found no row to write keeps its position all the same."""
    out = writer(world, writer_id)
    assert out.commit() == -1
    world.downtime_s = 60.0
    world.outage = Outage(CommitEmptyTransaction, done)
    with pytest.raises(WaitTimeout):
        out.commit("5")
    world.end_faults()
    assert out.commit() == 0
    assert (out.last, out.last_token) == (0, "5")
    out.write(b"a")
    assert out.commit("6") == 1
    assert world.committed() == [[b"a"], []]


def test_a_writer_that_commits_only_a_token_is_forgotten_as_others_without_an_id(world: World) -> None:
    """A commit without rows does not say that the writer id is used once: the begin before it does."""
    out = writer(world, None)
    assert out.commit("5") == 0
    assert world.server is not None
    [stream] = world.server.store.all()
    assert stream._ledger.writers[out.writer_id].single_use


def test_a_commit_without_a_token_has_none(world: World) -> None:
    out = run_program(world, 3)
    out.write(b"a")
    out.commit()
    assert out.last_token == writer(world).last_token == ""


def test_the_rows_stay_when_a_token_is_refused(world: World) -> None:
    out = writer(world)
    out.write(b"a")
    with pytest.raises(UsageError, match="has 1026 bytes of UTF-8, expected at most 1024"):
        out.commit("ö" * 513)
    for wrong in (7, "\ud800"):
        with pytest.raises(UsageError, match="expected text of valid Unicode"):
            out.commit(wrong)  # type: ignore[arg-type]
    out.write(b"b")
    assert out.commit("ö" * 512) == 0
    assert writer(world).last_token == "ö" * 512
    assert world.committed() == [[b"a", b"b"], []]


def test_a_copy_of_the_store_gives_the_token_of_its_last_transaction(world: World) -> None:
    """The rows that an older copy lacks are written again, once."""
    run_program(world, 3)
    copy = world.copy()
    out = run_program(world, 3)
    world.restore(copy)
    world.end_faults()
    out.write(b"more")  # few rows: the commit request is the first that the server sees
    with pytest.raises(RefusedError) as refused:
        out.commit()
    assert refused.value.reason == "diverged"
    out.accept_loss()
    assert (out.last, out.last_token) == (0, "3")
    run_program(world, 6)
    assert world.committed() == [ROWS, []]

"""Two programs of one writer id, and a writer that its server has forgotten (finding C1)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aeron_spark.cli.server_rows import CommittedRows, _RowSender
from aeron_spark.errors import RefusedError, UsageError, WaitTimeout
from aeron_spark.stream_client.writer import StreamWriter
from aeron_spark.streams.ledger import SINGLE_USE_EXPIRY_NS
from aeron_spark.wire.stream_rpc import BeginTransaction, CommitTransaction
from tests.unit.stream_client.joined import Done, Outage, World

HOURS = 3600.0


def writer(world: World, writer_id: str | None = "w") -> StreamWriter:
    return StreamWriter(world.stream_session(), "s", writer_id=writer_id, payload="raw", timeout=4.0, partition=0)


def in_doubt(world: World, out: StreamWriter, done: Done) -> None:
    """Have the commit of one row fail, in an outage that has passed then."""
    out.write(b"one")
    world.away = 60.0
    world.outage = Outage(CommitTransaction, done)
    with pytest.raises(WaitTimeout):
        out.commit()
    world.calm()


def test_a_fenced_writer_does_not_fence_its_successor_by_abort(world: World) -> None:
    """Finding C1: abort() entered with a new run, which the server took for a later one."""
    first = writer(world)
    in_doubt(world, first, Done.NEVER)
    second = writer(world)
    second.write(b"two")
    with pytest.raises(RefusedError, match="is fenced"):
        first.abort()
    with pytest.raises(RefusedError, match="is fenced"):
        first.commit()
    assert second.commit() == 0
    assert world.committed() == [[b"two"], []]


def test_an_abort_whose_response_is_lost_is_asked_again_and_fences_nothing_of_its_own(world: World) -> None:
    out = writer(world)
    in_doubt(world, out, Done.NEVER)
    world.outage = Outage(BeginTransaction, Done.NOW)
    with pytest.raises(WaitTimeout):
        out.abort()
    world.calm()
    out.abort()
    out.write(b"two")
    out.commit()
    assert world.committed() == [[b"two"], []]


@pytest.mark.parametrize("done", [Done.NOW, Done.NEVER])
@pytest.mark.parametrize("call", ["commit", "abort"])
def test_a_writer_that_was_forgotten_does_not_commit_a_second_time(world: World, done: Done, call: str) -> None:
    """Finding C1: a writer without an id is forgotten after a day; its commit() was then done again."""
    out = writer(world, None)
    in_doubt(world, out, done)
    before = world.committed()
    world.sleep(SINGLE_USE_EXPIRY_NS / 1e9 + HOURS)
    assert world.server is not None
    for stream in world.server.store.all():
        stream._ledger.forget_single_use_writers(world.time.wall())
    world.server.store.tick()
    for _ in range(2):
        with pytest.raises(RefusedError, match="is not known any more"):
            getattr(out, call)()
        world.sleep(HOURS)
    assert world.committed() == before


def test_a_commit_that_was_done_is_found_done_when_it_is_repeated(world: World) -> None:
    """Finding C1, in its plainest form: the response was lost for longer than commit() waits."""
    out = writer(world)
    in_doubt(world, out, Done.NOW)
    assert out.commit() == 0
    assert out.last == 0
    assert world.committed() == [[b"one"], []]


def test_a_commit_that_was_not_done_is_done_when_it_is_repeated(world: World) -> None:
    """Finding C1: also where the server was replaced meanwhile, and has nothing of the stage."""
    for restarted in (False, True):
        out = writer(world)
        in_doubt(world, out, Done.NEVER)
        if restarted:
            world.kill()
            world.calm()
        assert out.commit() >= 0
        out.close()
    assert world.committed() == [[b"one", b"one"], []]


def test_a_stage_that_the_servers_disk_has_damaged_is_staged_again(world: World) -> None:
    """Finding C1: commit() failed for ever, though the writer has the rows."""
    out = writer(world)
    out.write(b"one")
    out._open.staged.finish()  # type: ignore[union-attr]
    assert world.server is not None
    (stream,) = world.server.store.all()
    (stage,) = stream._stages.of("w")
    stage._crc ^= 1
    assert out.commit() == 0
    assert world.committed() == [[b"one"], []]


def test_rows_of_a_write_that_was_interrupted_are_not_committed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding C1: write() raised, and its rows were committed with those of the others."""
    out = writer(world)
    out.write(b"kept")
    open_ = out._open
    assert open_ is not None

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(open_), "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            out.write(b"not")
    assert out.commit() == 0
    assert world.committed() == [[b"kept"], []]


@pytest.mark.parametrize("done", [Done.NOW, Done.NEVER])
def test_a_block_whose_commit_fails_leaves_the_writer_open(world: World, done: Done) -> None:
    """Finding C1: it was closed, and nothing could say any more what became of its rows."""
    out = writer(world)
    world.away = 60.0

    def block() -> None:
        with out:
            out.write(b"one")
            world.outage = Outage(CommitTransaction, done)

    with pytest.raises(WaitTimeout):
        block()
    world.calm()
    assert out.commit() == 0
    out.close()
    assert world.committed() == [[b"one"], []]


def test_a_block_that_raises_drops_its_rows_and_closes(world: World) -> None:
    out = writer(world)

    def block() -> None:
        with out:
            out.write(b"one")
            raise KeyError

    with pytest.raises(KeyError):
        block()
    with pytest.raises(UsageError, match="closed"):
        out.commit()
    assert world.committed() == [[], []]


@pytest.mark.parametrize(
    ("done", "more", "said"),
    [
        (Done.NOW, "", "3 rows are committed in spite of this error"),
        (Done.NEVER, "", "2 rows are committed in spite of this error"),
        (Done.NOW, "last", "2 rows are committed in spite of this error:\naeron-spark: the server did not respond"),
    ],
    ids=["done", "not done", "not known"],
)
def test_a_command_that_sends_says_what_is_committed(
    world: World, done: Done, more: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Finding C1: the command said "2 rows were committed before this", and the stream had 3."""
    committed = CommittedRows(rows=2, transactions=1)
    sender = _RowSender(None, "s", "raw", "w", None, committed)  # type: ignore[arg-type]
    sender._writer = writer(world)
    sender.write(pa.record_batch({"value": [b"three"]}))
    world.away = 60.0
    world.outage = Outage(CommitTransaction, done)
    with pytest.raises(WaitTimeout) as failed:
        sender.commit()
    if not more:
        world.calm()
    sender.print_committed()
    sender.close()
    assert said in capsys.readouterr().err
    assert failed.value.what

"""Two programs with one writer id, and a writer that the server has forgotten."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aeron_spark.cli.signals import StopRequest
from aeron_spark.client import client
from aeron_spark.client.command_rows import ServerTarget
from aeron_spark.errors import RefusedError, UsageError, WaitTimeout
from aeron_spark.stream_client.writer import StreamWriter
from aeron_spark.streams.ledger import SINGLE_USE_EXPIRY_NS
from aeron_spark.wire.stream_requests import BeginTransaction, CommitTransaction, ListStreams
from tests.unit.cli.transcripts import StoreClient
from tests.unit.stream_client.faults import Done, Outage
from tests.unit.stream_client.joined import World

HOURS = 3600.0


def writer(world: World, writer_id: str | None = "w") -> StreamWriter:
    return StreamWriter(world.stream_session(), "s", writer_id=writer_id, payload="raw", timeout=4.0, partition=0)


def fail_commit(world: World, out: StreamWriter, done: Done) -> None:
    """Let the commit of one row fail in an outage, and end the outage."""
    out.write(b"one")
    world.downtime_s = 60.0
    world.outage = Outage(CommitTransaction, done)
    with pytest.raises(WaitTimeout):
        out.commit()
    world.end_faults()


def test_a_fenced_writer_does_not_fence_its_successor_by_abort(world: World) -> None:
    """Regression: abort() used a new run, which the server took for a later one."""
    first = writer(world)
    fail_commit(world, first, Done.NEVER)
    second = writer(world)
    second.write(b"two")
    with pytest.raises(RefusedError, match="is fenced"):
        first.abort()
    with pytest.raises(RefusedError, match="is fenced"):
        first.commit()
    assert second.commit() == 0
    assert world.committed() == [[b"two"], []]


def test_a_repeated_abort_does_not_fence_its_own_run(world: World) -> None:
    out = writer(world)
    fail_commit(world, out, Done.NEVER)
    world.outage = Outage(BeginTransaction, Done.NOW)
    with pytest.raises(WaitTimeout):
        out.abort()
    world.end_faults()
    out.abort()
    out.write(b"two")
    out.commit()
    assert world.committed() == [[b"two"], []]


@pytest.mark.parametrize("done", [Done.NOW, Done.NEVER])
@pytest.mark.parametrize("call", ["commit", "abort"])
def test_a_forgotten_writer_does_not_commit_a_second_time(world: World, done: Done, call: str) -> None:
    """Regression: a writer without an id is forgotten after a day; its commit() was then done again."""
    out = writer(world, None)
    fail_commit(world, out, done)
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


def test_a_repeated_commit_finds_that_the_first_one_succeeded(world: World) -> None:
    """Regression: the response was lost for longer than commit() waits."""
    out = writer(world)
    fail_commit(world, out, Done.NOW)
    assert out.commit() == 0
    assert out.last == 0
    assert world.committed() == [[b"one"], []]


def test_a_repeated_commit_commits_if_the_first_one_did_not(world: World) -> None:
    """Also after a restart of the server, which then lacks the stage."""
    for restarted in (False, True):
        out = writer(world)
        fail_commit(world, out, Done.NEVER)
        if restarted:
            world.kill()
            world.end_faults()
        assert out.commit() >= 0
        out.close()
    assert world.committed() == [[b"one", b"one"], []]


def test_rows_of_a_damaged_stage_are_staged_again(world: World) -> None:
    """Regression: each commit() failed, although the writer has the rows."""
    out = writer(world)
    out.write(b"one")
    out._open.staged.finish()  # type: ignore[union-attr]
    assert world.server is not None
    (stream,) = world.server.store.all()
    (stage,) = stream._stages.of("w")
    stage._crc ^= 1
    assert out.commit() == 0
    assert world.committed() == [[b"one"], []]


def test_rows_of_an_interrupted_write_are_not_committed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: write() raised, and its rows were committed with the others."""
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
    """Regression: the writer was closed, and the outcome of its rows could not be found out."""
    out = writer(world)
    world.downtime_s = 60.0

    def block() -> None:
        with out:
            out.write(b"one")
            world.outage = Outage(CommitTransaction, done)

    with pytest.raises(WaitTimeout):
        block()
    world.end_faults()
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
    ("done", "more", "message"),
    [
        (Done.NOW, "", "3 rows are committed in spite of this error"),
        (Done.NEVER, "", "2 rows are committed in spite of this error"),
        (Done.NOW, "last", "2 rows are committed in spite of this error:\naeron-spark: the server did not respond"),
    ],
    ids=["done", "not done", "not known"],
)
def test_send_reports_how_many_rows_are_committed(
    world: World, done: Done, more: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the command printed "2 rows were committed before this", and the stream had 3."""
    monkeypatch.setattr(client, "connect", lambda address: StoreClient(world))
    world.stream_session().call(ListStreams())  # connects
    target = ServerTarget(("feeds.example:20121", {}), "s", {"writerId": "w"}, None, None)
    notes: list[str] = []

    def send() -> None:
        target.write(pa.record_batch({"value": [b"one", b"two"]}))
        target.end_file()
        target.write(pa.record_batch({"value": [b"three"]}))
        world.downtime_s = 600.0
        world.outage = Outage(CommitTransaction, done)
        try:
            target.end_file()
        finally:
            if not more:
                world.end_faults()

    with pytest.raises(WaitTimeout), target.opened("raw", StopRequest(0.0), notes.append):
        send()
    assert message in "\n".join(notes)

"""Writers of a server that drains wait for its restart, and send again; by a virtual clock."""

from __future__ import annotations

import pytest

from aeron_spark.errors import RefusedError
from aeron_spark.stream_client.writer import StreamWriter
from tests.unit.stream_client.joined import World

DRAIN_S = 10.0


def begin_drain(world: World, monkeypatch: pytest.MonkeyPatch, seconds: float = DRAIN_S) -> None:
    """Let the server drain for ``seconds``, and then restart."""
    assert world.server is not None
    drained, ends_at, sleep = world.server, world.time.now + seconds, world.sleep
    drained.service.is_draining = True

    def sleep_and_end(duration: float) -> None:
        sleep(duration)
        if world.server is drained and world.time.now >= ends_at:
            world.kill()

    monkeypatch.setattr(world, "sleep", sleep_and_end)


class Writer:
    """A writer whose stream session sleeps by the world's present function."""

    def __init__(self, world: World, timeout: float = 60.0) -> None:
        session = world.stream_session()
        session.sleep = lambda seconds: world.sleep(seconds)
        self.out = StreamWriter(session, "s", writer_id="w", payload="raw", timeout=timeout)


def rows(world: World) -> list[bytes]:
    committed = world.committed()
    assert committed is not None
    return sorted(row for partition in committed for row in partition)


@pytest.mark.parametrize("step", ["before the write", "before the commit", "between two partitions"])
def test_a_writer_continues_after_a_drain_that_begins_at_any_step(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    out = Writer(world).out
    out.write(b"0")
    assert out.commit() == 0
    if step == "before the write":
        begin_drain(world, monkeypatch)
    out.write(b"1", partition=0)
    if step == "between two partitions":
        begin_drain(world, monkeypatch)
    out.write(b"2", partition=1)
    if step == "before the commit":
        begin_drain(world, monkeypatch)
    begun_at = world.time.now
    assert out.commit() == 1
    assert step != "before the commit" or world.time.now - begun_at >= DRAIN_S
    out.write(b"3")
    assert out.commit() == 2
    assert rows(world) == [b"0", b"1", b"2", b"3"]


def test_a_writer_whose_timeout_is_shorter_than_the_drain_gets_the_refusal_and_can_commit_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Writer(world, timeout=4.0).out
    out.write(b"1")
    begin_drain(world, monkeypatch)
    with pytest.raises(RefusedError) as refused:
        out.commit()
    assert refused.value.reason == "draining"
    world.sleep(DRAIN_S)
    world.end_faults()
    assert out.commit() == 0
    assert rows(world) == [b"1"]

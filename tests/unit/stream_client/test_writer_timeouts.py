"""How long a writer waits for a server that says nothing, by a clock of the test's own (finding C2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aeron_spark.errors import ConnectError, StillWorking, UsageError, WaitTimeout
from aeron_spark.stream_client.transactions import ATTEMPT_TIMEOUT_S, COMMIT_TIMEOUT_S
from aeron_spark.stream_client.writer import ABORT_TIMEOUT_S, StreamWriter
from aeron_spark.streams.stream import Stream
from tests.unit.stream_client.joined import Fault, World

SLACK = 0.5  # seconds: the shortest attempts, and what each request takes


def writer(world: World, timeout: float) -> StreamWriter:
    return StreamWriter(world.stream_session(), "s", writer_id="w", payload="raw", timeout=timeout)


def seconds_of(world: World, timeout: float, call: Callable[[], object]) -> float:
    """How long a call took that failed; no request in it was to wait longer than what was left."""
    begun, before = world.time.now, len(world.asked)
    with pytest.raises((ConnectError, WaitTimeout)):
        call()
    late = [one for one in world.asked[before:] if one[1] + one[2] > begun + timeout + SLACK]
    assert not late, f"these requests may wait beyond {timeout} s: {late}"
    return world.time.now - begun


@pytest.mark.parametrize("fault", [Fault.STOP, Fault.KILL])
@pytest.mark.parametrize("timeout", [4.0, 60.0])
def test_commit_waits_as_long_as_it_was_told(world: World, timeout: float, fault: Fault) -> None:
    """Finding C2."""
    out = writer(world, timeout)
    out.write(b"row")
    world.away = 100_000.0
    world.faults.append(fault)
    for _ in range(3):  # and each further time
        assert timeout <= seconds_of(world, timeout, out.commit) <= timeout + SLACK
    world.calm()
    assert out.commit() == 0
    assert world.committed() in ([[b"row"], []], [[], [b"row"]])


@pytest.mark.parametrize("after", range(4))
def test_commit_waits_as_long_as_it_was_told_wherever_it_was_stopped(world: World, after: int) -> None:
    """Finding C2: the stage of either partition, the commit's request, its response."""
    out = writer(world, 4.0)
    out.write(b"row", partition=0)
    out.write(b"row", partition=1)
    world.away = 100_000.0
    world.faults.extend([Fault.NONE] * after + [Fault.STOP])
    if after < 3:
        assert 4.0 <= seconds_of(world, 4.0, out.commit) <= 4.0 + SLACK
    else:
        assert out.commit() == 0  # it asks no more


@pytest.mark.parametrize("timeout", [4.0, 60.0])
def test_write_and_the_first_request_wait_as_long_as_they_were_told(world: World, timeout: float) -> None:
    """Finding C2."""
    out = writer(world, timeout)
    world.away = 100_000.0
    world.faults.append(Fault.STOP)
    assert timeout <= seconds_of(world, timeout, lambda: out.write(b"row")) <= timeout + SLACK
    assert timeout <= seconds_of(world, timeout, lambda: writer(world, timeout)) <= timeout + SLACK


@pytest.mark.parametrize("timeout", [4.0, 90.0])
def test_rows_that_the_server_takes_no_more_of_wait_as_long_as_they_were_told(world: World, timeout: float) -> None:
    """Finding C2: the stage is there, and the window of its branch is full."""
    out = writer(world, timeout)
    out.write(b"first", partition=0)
    world.away = 100_000.0
    world.stop()
    rows = [bytes(8_000)] * 1_000
    assert timeout <= seconds_of(world, timeout, lambda: out.write(rows, partition=0)) <= timeout + SLACK


@pytest.mark.parametrize("timeout", [1.0, 60.0])
def test_abort_and_close_wait_shortly(world: World, timeout: float) -> None:
    """Finding C2."""
    for end in (StreamWriter.abort, StreamWriter.close):
        out = writer(world, timeout)
        out.write(b"row")
        world.away = 100_000.0
        world.faults.append(Fault.STOP)
        begun = world.time.now
        end(out)
        assert world.time.now - begun <= min(timeout, ABORT_TIMEOUT_S) + SLACK
        world.calm()


def test_a_commit_that_the_server_is_at_work_on_is_waited_for(world: World) -> None:
    """Finding C2: ``timeout`` is of a server that is silent."""
    out = writer(world, 4.0)
    out.write(b"row")
    world.faults.append(Fault.NONE)  # to end the stage
    world.faults.extend([Fault.BUSY] * 50)
    begun = world.time.now
    assert out.commit() == 0
    assert world.time.now - begun > 30


def test_a_commit_that_never_ends_is_given_up(world: World) -> None:
    """Finding C2."""
    out = writer(world, 60.0)
    out.write(b"row")
    world.faults.append(Fault.NONE)
    world.faults.extend([Fault.BUSY] * 1_000)
    begun = world.time.now
    with pytest.raises(StillWorking):
        out.commit()
    assert COMMIT_TIMEOUT_S <= world.time.now - begun <= COMMIT_TIMEOUT_S + 60 + 2 * ATTEMPT_TIMEOUT_S
    world.calm()
    assert out.commit() == 0


def test_a_commit_that_the_server_finds_wrong_is_not_repeated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what may have lost its connection is: the caller would wait a minute for the same words."""
    out = writer(world, 60.0)
    out.write(b"row")
    begun = world.time.now
    with monkeypatch.context() as patched:
        patched.setattr(Stream, "commit", refuse)
        with pytest.raises(UsageError, match="a commit names a stage twice"):
            out.commit()
    assert world.time.now - begun < 1.0
    assert out.commit() == 0
    assert world.committed() in ([[b"row"], []], [[], [b"row"]])


def refuse(*given: object, **named: object) -> None:
    raise UsageError("a commit names a stage twice")

"""Time that a writer waits for a server without a response, by a virtual clock."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from aeron_spark.errors import ConnectError, RefusedError, StillWorking, UsageError, WaitTimeout
from aeron_spark.stream_client.staging import ATTEMPT_TIMEOUT_S, COMMIT_TIMEOUT_S
from aeron_spark.stream_client.writer import ABORT_TIMEOUT_S, StreamWriter
from aeron_spark.streams.stream import Stream
from tests.unit.stream_client.faults import Fault
from tests.unit.stream_client.joined import World

SLACK = 0.5  # seconds: the shortest attempts, and what each request takes


def writer(world: World, timeout: float) -> StreamWriter:
    return StreamWriter(world.stream_session(), "s", writer_id="w", payload="raw", timeout=timeout)


def seconds_of(world: World, timeout: float, call: Callable[[], object]) -> float:
    """Return how long a failing call took; no request in it may wait beyond the call's timeout."""
    begun, before = world.time.now, len(world.sent_requests)
    with pytest.raises((ConnectError, WaitTimeout)):
        call()
    late = [one for one in world.sent_requests[before:] if one[1] + one[2] > begun + timeout + SLACK]
    assert not late, f"these requests may wait beyond {timeout} s: {late}"
    return world.time.now - begun


@pytest.mark.parametrize("fault", [Fault.STOP, Fault.KILL])
@pytest.mark.parametrize("timeout", [4.0, 60.0])
def test_commit_waits_for_its_timeout(world: World, timeout: float, fault: Fault) -> None:
    out = writer(world, timeout)
    out.write(b"row")
    world.downtime_s = 100_000.0
    world.faults.append(fault)
    for _ in range(3):  # also at each repetition
        assert timeout <= seconds_of(world, timeout, out.commit) <= timeout + SLACK
    world.end_faults()
    assert out.commit() == 0
    assert world.committed() in ([[b"row"], []], [[], [b"row"]])


@pytest.mark.parametrize("after", range(4))
def test_commit_waits_for_its_timeout_at_each_request(world: World, after: int) -> None:
    """The requests are FinishStage of both partitions and the commit."""
    out = writer(world, 4.0)
    out.write(b"row", partition=0)
    out.write(b"row", partition=1)
    world.downtime_s = 100_000.0
    world.faults.extend([Fault.NONE] * after + [Fault.STOP])
    if after < 3:
        assert 4.0 <= seconds_of(world, 4.0, out.commit) <= 4.0 + SLACK
    else:
        assert out.commit() == 0  # it sends no further request


@pytest.mark.parametrize("timeout", [4.0, 60.0])
def test_write_and_the_first_request_wait_for_the_timeout(world: World, timeout: float) -> None:
    out = writer(world, timeout)
    world.downtime_s = 100_000.0
    world.faults.append(Fault.STOP)
    assert timeout <= seconds_of(world, timeout, lambda: out.write(b"row")) <= timeout + SLACK
    assert timeout <= seconds_of(world, timeout, lambda: writer(world, timeout)) <= timeout + SLACK


@pytest.mark.parametrize("timeout", [4.0, 90.0])
def test_write_waits_for_its_timeout_if_the_server_takes_no_more_rows(world: World, timeout: float) -> None:
    """The stage is open, and the window of its bulk link is full."""
    out = writer(world, timeout)
    out.write(b"first", partition=0)
    world.downtime_s = 100_000.0
    world.stop()
    rows = [bytes(8_000)] * 1_000
    assert timeout <= seconds_of(world, timeout, lambda: out.write(rows, partition=0)) <= timeout + SLACK


@pytest.mark.parametrize("timeout", [1.0, 60.0])
def test_abort_and_close_wait_a_short_time(world: World, timeout: float) -> None:
    for end in (StreamWriter.abort, StreamWriter.close):
        out = writer(world, timeout)
        out.write(b"row")
        world.downtime_s = 100_000.0
        world.faults.append(Fault.STOP)
        begun = world.time.now
        end(out)
        assert world.time.now - begun <= min(timeout, ABORT_TIMEOUT_S) + SLACK
        world.end_faults()


def test_commit_waits_while_the_server_works_on_it(world: World) -> None:
    """``timeout`` bounds the server's silence only."""
    out = writer(world, 4.0)
    out.write(b"row")
    world.faults.append(Fault.NONE)  # FinishStage
    world.faults.extend([Fault.BUSY] * 50)
    begun = world.time.now
    assert out.commit() == 0
    assert world.time.now - begun > 30


def test_commit_fails_after_the_longest_time_for_a_commit(world: World) -> None:
    out = writer(world, 60.0)
    out.write(b"row")
    world.faults.append(Fault.NONE)
    world.faults.extend([Fault.BUSY] * 1_000)
    begun = world.time.now
    with pytest.raises(StillWorking):
        out.commit()
    assert COMMIT_TIMEOUT_S <= world.time.now - begun <= COMMIT_TIMEOUT_S + 60 + 2 * ATTEMPT_TIMEOUT_S
    world.end_faults()
    assert out.commit() == 0


def test_a_commit_is_not_repeated_after_an_error_that_is_not_an_outage(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller would wait a minute for the same error."""
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


def test_a_write_is_not_repeated_after_a_refusal_that_a_repetition_gets_again(world: World) -> None:
    """Regression: a writer whose new column was refused waited for its timeout, a minute, before it said so."""
    out = StreamWriter(world.stream_session(), "s", partition=0)
    out.write({"n": 1})
    out.commit()
    out.write(pa.record_batch({"n": [2]}))
    begun = world.time.now
    with pytest.raises(RefusedError, match="the data adds the columns 'x'") as refused:
        out.write(pa.record_batch({"n": [3], "x": [0.5]}))
    assert refused.value.reason == "schema"
    assert world.time.now - begun < 1.0
    out.write(pa.record_batch({"n": [4]}))  # the transaction is as it was before the refused rows
    assert out.commit() == 1
    committed = world.committed()
    assert committed is not None
    assert [len(messages) for messages in committed] == [3, 0]


def refuse(*given: object, **named: object) -> None:
    raise UsageError("a commit names a stage twice")


def test_a_writer_that_lost_its_stage_continues_after_the_drain_and_restart_of_its_server(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the server refused to begin the transaction again, as it refuses new ones, and commit() failed."""
    sleep, drained_at = world.sleep, world.time.now + 10.0

    def sleep_until_drained(seconds: float) -> None:
        sleep(seconds)
        if world.server is not None and world.server.service.is_draining and world.time.now > drained_at:
            world.kill()

    monkeypatch.setattr(world, "sleep", sleep_until_drained)
    out = writer(world, 60.0)
    out.write(b"row")
    assert world.server is not None
    world.server.service.is_draining = True
    world.faults.append(Fault.BREAK)
    assert out.commit() == 0
    assert world.time.now > drained_at
    assert world.committed() in ([[b"row"], []], [[], [b"row"]])

"""Readers wait for commits without a thread: a commit, the stream's end or a cancellation ends each wait."""

from __future__ import annotations

import threading

import pytest

from aeron_spark.errors import UsageError
from aeron_spark.streams.model import StreamView
from tests.ending import LONG_TIMEOUT_S
from tests.unit.streams.readable import MemoryStream


def test_a_commit_ends_the_waits_whose_ends_it_exceeds_and_no_others() -> None:
    stream = MemoryStream(64, 64)
    both, second, far = stream.when_beyond([64, 64]), stream.when_beyond([1_000, 64]), stream.when_beyond([128, 1_000])
    assert not any(wait.done() for wait in (both, second, far))
    stream.publish(128, 64)
    assert both.result(0) is True
    assert not second.done()
    assert not far.done()
    assert stream.waits == 2
    stream.publish(128, 128)
    assert second.result(0) is True
    assert not far.done()
    stream.publish(192, 128)
    assert far.result(0) is True
    assert stream.waits == 0


def test_a_wait_for_ends_that_were_exceeded_before_is_done_at_once() -> None:
    stream = MemoryStream(64, 64)
    assert stream.when_beyond([64, 0]).result(0) is True
    assert stream.waits == 0


def test_a_wait_with_a_wrong_number_of_positions_is_refused() -> None:
    with pytest.raises(UsageError, match="1 positions for stream 'flights', expected 2"):
        MemoryStream(0, 0).when_beyond([0])


@pytest.mark.parametrize("why", ["closed", "deleted"])
def test_the_end_of_a_stream_ends_each_wait_with_an_error(why: str) -> None:
    stream = MemoryStream(64)
    waits = [stream.when_beyond([64]) for _ in range(3)]
    stream.end(why)
    for wait in waits:
        with pytest.raises(UsageError, match=f"stream 'flights' was {why}"):
            wait.result(0)
    assert stream.waits == 0
    with pytest.raises(UsageError, match=f"stream 'flights' was {why}"):
        stream.when_beyond([0])


def test_the_end_of_a_stream_for_writers_ends_each_wait_without_rows() -> None:
    stream = MemoryStream(64)
    waits = [stream.when_beyond([64]) for _ in range(3)]
    stream.end_waits()
    assert [wait.result(0) for wait in waits] == [False] * 3
    assert stream.waits == 0
    later = stream.when_beyond([64])  # the stream may be reopened
    assert not later.done()
    stream.publish(128)
    assert later.result(0) is True


def test_a_wait_that_its_caller_ends_is_forgotten() -> None:
    stream = MemoryStream(64)
    cancelled, timed_out, waiting = (stream.when_beyond([64]) for _ in range(3))
    assert cancelled.cancel()
    timed_out.set_result(False)
    assert stream.waits == 1
    stream.publish(128)
    assert cancelled.cancelled()
    assert timed_out.result(0) is False
    assert waiting.result(0) is True


def test_the_callback_of_a_wait_may_use_the_stream() -> None:
    stream = MemoryStream(64)
    next_waits = []
    stream.when_beyond([64]).add_done_callback(lambda _: next_waits.append(stream.when_beyond([128])))
    stream.publish(128)
    stream.publish(192)
    assert [wait.result(0) for wait in next_waits] == [True]


def test_a_commit_between_the_check_of_the_view_and_the_registration_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commit starts during the check. It must not be complete before the wait is registered."""
    stream = MemoryStream(64)
    commit = threading.Thread(target=lambda: stream.publish(128), daemon=True)
    is_beyond = StreamView.is_beyond

    def is_beyond_before_a_commit(self: StreamView, ends: list[int]) -> bool:
        result = is_beyond(self, ends)
        if threading.current_thread() is not commit and not commit.is_alive():
            commit.start()
            commit.join(0.2)  # the commit waits for the registration; without a lock it would end now
        return result

    monkeypatch.setattr(StreamView, "is_beyond", is_beyond_before_a_commit)
    wait = stream.when_beyond([64])
    commit.join(LONG_TIMEOUT_S)
    assert wait.result(1) is True

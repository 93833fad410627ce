"""Commits that a server runs: a repeated request joins its commit, and a draining server begins no further one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from aeron_spark.endpoint.loop import Loop
from aeron_spark.endpoint.peer_calls import Deferred
from aeron_spark.errors import RefusedError, StillWorking, TransportError, WaitTimeout
from aeron_spark.server.stream_operations import RunningCommits
from aeron_spark.wire.stream_requests import Committed

TIMEOUT_S = 30.0
OUTCOME = Committed(repeated=False, ends=(1,), stamp="s")


class Draining:
    """Whether a server drains."""

    def __init__(self) -> None:
        self.begun = False

    def check(self) -> None:
        if self.begun:
            raise RefusedError("the server is about to end", reason="draining")


class Held:
    """A commit that runs until the test releases it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.running = threading.Event()
        self.release = threading.Event()
        self.count = 0
        self._error = error

    def __call__(self) -> Committed:
        self.count += 1
        self.running.set()
        assert self.release.wait(TIMEOUT_S)
        if self._error is not None:
            raise self._error
        return OUTCOME


def test_a_commit_that_runs_when_a_drain_begins_finishes_also_for_a_repeated_request() -> None:
    draining, held = Draining(), Held()
    commits = RunningCommits(Loop("test"), draining.check)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(commits.run, "a", held, TIMEOUT_S)
        try:
            assert held.running.wait(TIMEOUT_S)
            draining.begun = True
            late = commits.run("a", held, 0.0)
            assert isinstance(late, Deferred)
            with pytest.raises(StillWorking):
                late.finish()
            repeated = commits.run("a", held, TIMEOUT_S)
            assert isinstance(repeated, Deferred)
            assert not repeated.awaited.done()
            with pytest.raises(RefusedError, match="about to end"):
                commits.run("b", held, 0.0)
            assert len(commits) == 1
        finally:
            held.release.set()
        assert first.result(TIMEOUT_S) is OUTCOME
        assert repeated.awaited.result(TIMEOUT_S)
        assert repeated.finish() is OUTCOME
    assert (len(commits), held.count) == (0, 1)


def test_a_draining_server_does_not_begin_a_commit() -> None:
    draining, held = Draining(), Held()
    draining.begun = True
    commits = RunningCommits(Loop("test"), draining.check)
    with pytest.raises(RefusedError):
        commits.run("a", held, TIMEOUT_S)
    assert (len(commits), held.count) == (0, 0)


def test_a_commit_that_fails_is_not_counted_and_can_begin_again() -> None:
    def fail() -> Committed:
        raise RefusedError("no")

    commits = RunningCommits(Loop("test"))
    with pytest.raises(RefusedError):
        commits.run("a", fail, TIMEOUT_S)
    assert len(commits) == 0
    assert commits.run("a", lambda: OUTCOME, TIMEOUT_S) is OUTCOME


def test_a_repeated_request_waits_without_a_thread_until_its_commit_or_its_time_has_ended() -> None:
    now = [0.0]
    held, loop = Held(), Loop("test", lambda: now[0])
    commits = RunningCommits(loop)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(commits.run, "a", held, 5.0)
        try:
            assert held.running.wait(TIMEOUT_S)
            found = [commits.run("a", held, seconds) for seconds in (5.0, 20.0)]
            short, long = (one for one in found if isinstance(one, Deferred))
            now[0] = 5.0
            loop.expire(now[0])
            assert (short.awaited.done(), long.awaited.done()) == (True, False)
            with pytest.raises(StillWorking):
                short.finish()
        finally:
            held.release.set()
        assert first.result(TIMEOUT_S) is OUTCOME
        assert long.awaited.result(TIMEOUT_S)
    assert long.finish() is OUTCOME
    assert (held.count, len(commits), loop.waits) == (1, 0, 0)


@pytest.mark.parametrize("error", [TransportError("the disk is full"), WaitTimeout("the archive does not respond")])
def test_a_repeated_request_has_the_error_of_its_commit(error: Exception) -> None:
    held = Held(error)
    commits = RunningCommits(Loop("test"))
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(commits.run, "a", held, TIMEOUT_S)
        try:
            assert held.running.wait(TIMEOUT_S)
            repeated = commits.run("a", held, TIMEOUT_S)
        finally:
            held.release.set()
        assert first.exception(TIMEOUT_S) is error
    assert isinstance(repeated, Deferred)
    with pytest.raises(type(error)) as raised:
        repeated.finish()
    assert raised.value is error

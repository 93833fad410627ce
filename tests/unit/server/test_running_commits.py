"""Commits that a server runs: a repeated request joins its commit, and a draining server begins no further one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from aeron_spark.errors import RefusedError, StillWorking
from aeron_spark.server.running_commits import RunningCommits
from aeron_spark.streams.model import CommitOutcome

TIMEOUT_S = 30.0
OUTCOME = CommitOutcome(is_repeated=False, ends=[1], stamp="s")


class Draining:
    """Whether a server drains."""

    def __init__(self) -> None:
        self.begun = False

    def check(self) -> None:
        if self.begun:
            raise RefusedError("the server is about to end", reason="draining")


class Held:
    """A commit that runs until the test releases it."""

    def __init__(self) -> None:
        self.running = threading.Event()
        self.release = threading.Event()
        self.count = 0

    def __call__(self) -> CommitOutcome:
        self.count += 1
        self.running.set()
        assert self.release.wait(TIMEOUT_S)
        return OUTCOME


def test_a_commit_that_runs_when_a_drain_begins_finishes_also_for_a_repeated_request() -> None:
    draining, held = Draining(), Held()
    commits = RunningCommits(check_new=draining.check)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(commits.run, "a", held, TIMEOUT_S)
        try:
            assert held.running.wait(TIMEOUT_S)
            draining.begun = True
            with pytest.raises(StillWorking):
                commits.run("a", held, 0.0)
            repeated = threads.submit(commits.run, "a", held, TIMEOUT_S)
            with pytest.raises(RefusedError, match="about to end"):
                commits.run("b", held, 0.0)
            assert len(commits) == 1
        finally:
            held.release.set()
        assert first.result(TIMEOUT_S) is OUTCOME
        # The repeated request joins the commit, unless it arrives after its end.
        assert repeated.exception(TIMEOUT_S) is None or isinstance(repeated.exception(), RefusedError)
    assert (len(commits), held.count) == (0, 1)


def test_a_draining_server_does_not_begin_a_commit() -> None:
    draining, held = Draining(), Held()
    draining.begun = True
    commits = RunningCommits(check_new=draining.check)
    with pytest.raises(RefusedError):
        commits.run("a", held, TIMEOUT_S)
    assert (len(commits), held.count) == (0, 0)


def test_a_commit_that_fails_is_not_counted_and_can_begin_again() -> None:
    def fail() -> CommitOutcome:
        raise RefusedError("no")

    commits = RunningCommits()
    with pytest.raises(RefusedError):
        commits.run("a", fail, TIMEOUT_S)
    assert len(commits) == 0
    assert commits.run("a", lambda: OUTCOME, TIMEOUT_S) is OUTCOME

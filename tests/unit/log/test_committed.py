"""A query of a cluster's log reads up to the commit position, and what is taken back behind it is no loss."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import pytest

from aeron_spark.log.api import Log, RecordingState, StreamContent
from aeron_spark.log.planning import readable
from aeron_spark.log.query import QueryPlanner
from aeron_spark.options import ReadOptions
from tests.unit.log.fake_log import FakeLog

KEY = "embedded/0"
STATE = RecordingState(KEY, "00000000", 64, 640, False, 65536)


def test_the_end_is_the_commit_position_within_the_recording() -> None:
    ends = [(one.end, one.active) for at in (None, -1, 0, 64, 320, 640, 999) for one in _readable(at)]
    assert ends == [(640, False), (64, True), (64, True), (64, True), (320, True), (640, False), (640, False)]


def _readable(committed: int | None) -> list[RecordingState]:
    return readable([replace(STATE, committed=committed)])


@dataclass
class ClusterLog(FakeLog):
    """The log of a cluster, of which ``committed`` bytes are committed."""

    committed: int = 0

    archives = ("embedded",)

    def states(self) -> list[RecordingState]:
        return [replace(state, committed=self.committed) for state in super().states()]

    def check_recorded(self, states: list[RecordingState]) -> None:
        assert states

    def content(self, states: list[RecordingState]) -> StreamContent | None:
        return StreamContent(f"content up to {states[0].end}")

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        assert states


def planner(log: ClusterLog, **options: str) -> QueryPlanner:
    streaming = not any("ending" in name for name in options)
    given = {"cluster": "log", "startingOffsets": "earliest", **options}
    return QueryPlanner(
        ReadOptions.parse(given, streaming=streaming), lambda options, framed: cast("Log", log), framed=False
    )


def test_a_streaming_query_follows_the_commit_position() -> None:
    log = ClusterLog({KEY: [(96, 1)] * 10}, committed=300)
    query = planner(log)
    first = query.latest(query.initial(), limited=True)
    assert first.recordings == {KEY: 288}  # the message that the commit position cuts waits
    assert query.ends() == {KEY: 300}
    log.committed = 96  # the member has started again, and has not found its position yet
    assert query.latest(first, limited=True) is first
    log.messages = {KEY: [(96, 1)] * 3 + [(64, 1)] * 5}  # it has taken entries back, which others replaced
    log.committed = 288 + 128
    assert query.latest(first, limited=True).recordings == {KEY: 288 + 128}


def test_a_stopped_recording_is_not_finished_before_its_end_is_committed() -> None:
    """Between two terms, a member stops the recording of its log, and extends it later."""
    log = ClusterLog({KEY: [(96, 1)] * 4}, committed=192, stopped=frozenset({KEY}))
    query = planner(log)
    read = query.latest(query.initial(), limited=True)
    assert read.recordings == {KEY: 192}
    log.committed = 384
    read = query.latest(read, limited=True)
    assert read.positions() == {KEY: 384}
    log.messages, log.committed = {KEY: [(96, 1)] * 6}, 480
    assert query.latest(read, limited=True).positions() == {KEY: 480}


@pytest.mark.parametrize("later", [960, 96])
def test_available_now_ends_at_the_commit_position_of_its_start(later: int) -> None:
    """Later, the position is higher; or it is lower for a moment, because the member has started again."""
    log = ClusterLog({KEY: [(96, 1)] * 10}, committed=192)
    query = planner(log)
    query.prepare_available_now()
    log.committed = later
    assert query.latest(query.initial(), limited=True).recordings == {KEY: 192}


def test_a_new_query_that_starts_at_the_latest_starts_at_the_commit_position() -> None:
    query = planner(ClusterLog({KEY: [(96, 1)] * 10}, committed=192), startingOffsets="latest")
    assert query.initial().recordings == {KEY: 192}


def test_a_batch_reads_up_to_the_commit_position() -> None:
    query = planner(ClusterLog({KEY: [(96, 1)] * 10}, committed=300), endingOffsets="latest")
    (one,) = query.whole()
    assert (one.start, one.end, one.overrun) == (0, 288, 288)
    content = query.content()
    assert content.payload == "content up to 300"

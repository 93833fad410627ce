"""A task of the sink waits out a restart in each of its calls, and all its rows are in one appender afterwards."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    DataFormatError,
    EndedError,
    RefusedError,
    SessionLost,
    TransportError,
    WaitTimeout,
)
from aeron_spark.log.restarts import PAUSE_S, OutageLimit, Outages, RestartableAppender
from aeron_spark.wire.stream_requests import CommitPart, StagedPart

DOWNTIME_S = 6.0
LIMIT = OutageLimit("the server of stream 's'", 60.0, "connectTimeout")
BATCHES = [pa.record_batch({"value": [b"%d" % number]}) for number in range(3)]
CALLS = range(len(BATCHES) + 1)  # an append for each batch, then finish
OUTAGES = [
    ConnectError("no server answers"), EndedError("the bulk link is closed"), TransportError("the link ended"),
    SessionLost("the server dropped the session"), WaitTimeout("no response"),
    RefusedError("unknown stage 'x'"), RefusedError("the server is about to end", reason="draining"),
    RefusedError("the server is about to end", reason="shutdown"),
]  # fmt: skip


class Server:
    """A server that loses its stages in a restart, and the time of this test."""

    def __init__(self, restart_at: int = -1, error: AeronSparkError | None = None) -> None:
        self.now = 0.0
        self.back_at = 0.0  # until then it is away
        self.downtime_s = DOWNTIME_S
        self.restarts = 0
        self.restart_at = restart_at  # number of the call in which the server restarts
        self.error = error or TransportError("the link ended")  # of a call with a lost stage
        self.calls = 0
        self.stages: list[Stage] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def answer(self) -> None:
        if self.now < self.back_at:
            raise self.error

    def restart(self) -> None:
        self.restarts += 1
        self.back_at = self.now + self.downtime_s

    def begin(self) -> Stage:
        self.stages.append(Stage(self))
        return self.stages[-1]

    def appender(self, *, is_running: bool = False, kept_bytes: int = 1 << 20) -> RestartableAppender:
        outages = Outages(LIMIT, self.answer, clock=lambda: self.now, sleep=self.sleep)
        return RestartableAppender(self.begin, outages, is_running=is_running, kept_bytes=kept_bytes)


class Stage:
    """A stage and its appender."""

    committed = False

    def __init__(self, server: Server) -> None:
        self.server = server
        self.opened_before = server.restarts
        self.values: list[bytes] = []
        self.is_discarded = False

    @property
    def rows(self) -> int:
        return len(self.values)

    def append(self, batch: pa.RecordBatch) -> None:
        self.call()
        self.values += batch["value"].to_pylist()

    def finish(self) -> list[CommitPart]:
        self.call()
        return [StagedPart(f"stage {len(self.server.stages)}", self.rows, 0, 0)]

    def discard(self) -> None:
        self.is_discarded = True

    def call(self) -> None:
        self.server.calls += 1
        if self.server.calls == self.server.restart_at + 1:
            self.server.restart()
        self.server.answer()
        if self.server.restarts != self.opened_before:
            raise self.server.error


def write(appender: RestartableAppender) -> list[CommitPart]:
    for batch in BATCHES:
        appender.append(batch)
    return list(appender.finish())


@pytest.mark.parametrize("error", OUTAGES, ids=lambda error: f"{type(error).__name__} {error.reason}".strip())
@pytest.mark.parametrize("call", CALLS)
def test_a_restart_is_waited_out_in_each_call(call: int, error: AeronSparkError) -> None:
    server = Server(call, error)
    appender = server.appender(is_running=True)
    assert write(appender) == [StagedPart("stage 2", 3, 0, 0)]
    assert appender.rows == 3
    lost, last = server.stages
    assert last.values == [b"0", b"1", b"2"]
    assert (lost.is_discarded, last.is_discarded) == (True, False)
    assert DOWNTIME_S <= server.now < DOWNTIME_S + 2 * PAUSE_S


@pytest.mark.parametrize("calls_later", range(4))
def test_a_second_restart_is_waited_out_while_the_rows_are_appended_again(calls_later: int) -> None:
    server = Server(3)

    def begin() -> Stage:
        if len(server.stages) == 1:
            server.restart_at = server.calls + calls_later
        return server.begin()

    outages = Outages(LIMIT, server.answer, clock=lambda: server.now, sleep=server.sleep)
    assert write(RestartableAppender(begin, outages, is_running=True)) == [StagedPart("stage 3", 3, 0, 0)]
    assert server.stages[-1].values == [b"0", b"1", b"2"]
    assert server.now >= 2 * DOWNTIME_S


def test_a_short_restart_that_is_over_before_the_server_is_asked_is_no_error() -> None:
    server = Server(2)
    server.downtime_s = 0.0
    assert write(server.appender()) == [StagedPart("stage 2", 3, 0, 0)]
    assert server.now == 0


@pytest.mark.parametrize(("kept", "call"), [(1, 2), (2, 3), (0, 1)])
def test_an_outage_after_more_rows_than_are_kept_is_an_error_at_once(kept: int, call: int) -> None:
    server = Server(call)
    appender = server.appender(is_running=True, kept_bytes=kept * BATCHES[0].get_total_buffer_size())
    with pytest.raises(TransportError, match="the link ended") as raised:
        write(appender)
    assert raised.value is server.error
    assert server.now == 0
    assert len(server.stages) == 1


def test_rows_up_to_the_limit_are_appended_again() -> None:
    server = Server(3)
    kept_bytes = 3 * BATCHES[0].get_total_buffer_size()
    assert write(server.appender(kept_bytes=kept_bytes)) == [StagedPart("stage 2", 3, 0, 0)]


def test_a_server_that_the_task_has_not_reached_is_not_waited_for() -> None:
    server = Server(0)
    with pytest.raises(TransportError, match="the link ended"):
        write(server.appender(is_running=False))
    assert server.now == 0


@pytest.mark.parametrize(
    "error", [DataFormatError("a value is null"), RefusedError("a later run has taken over", reason="fenced")]
)
@pytest.mark.parametrize("call", CALLS)
def test_an_error_that_no_restart_explains_is_raised_at_once(call: int, error: AeronSparkError) -> None:
    server = Server(call, error)
    with pytest.raises(type(error)) as raised:
        write(server.appender(is_running=True))
    assert raised.value is error
    assert server.now == 0
    assert len(server.stages) == 1


def test_an_error_that_a_server_repeats_while_it_answers_is_raised() -> None:
    server = Server()

    def begin() -> Stage:
        stage = server.begin()
        stage.opened_before = -1  # each of its calls fails
        return stage

    outages = Outages(LIMIT, server.answer, clock=lambda: server.now, sleep=server.sleep)
    with pytest.raises(TransportError, match="the link ended"):
        write(RestartableAppender(begin, outages, is_running=True))
    assert (len(server.stages), server.now) == (2, 0)


def test_the_error_after_the_timeout_has_the_server_the_time_and_the_option() -> None:
    server = Server(3)
    server.downtime_s = 1_000.0
    with pytest.raises(ConnectError, match=r"the server of stream 's' was away for 60 s: the link ended") as error:
        write(server.appender())
    assert "option 'connectTimeout'" in error.value.remedy
    assert LIMIT.timeout_s <= server.now < LIMIT.timeout_s + 1

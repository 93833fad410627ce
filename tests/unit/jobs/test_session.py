"""Tests the command lines of the jobs and the start of their queries."""

from __future__ import annotations

import argparse
import os
import signal
from threading import Event
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from aeron_spark.jobs import aeron_to_delta, audit, backfill, delta_to_aeron, session
from aeron_spark.jobs.session import BEGIN_ATTEMPTS, START_FAILURE, Running, begin, is_path, parse_option
from aeron_spark.spark import source

OF_AUDIT = ["--table=/t", "--option=channel=aeron:ipc", "--option=streamId=7"]
REQUIRED = ["--table", "/t", "--checkpoint", "/c", "--option", "channel=aeron:ipc"]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("streamId=1001", ("streamId", "1001")),
        ("channel=aeron:udp?endpoint=localhost:40123", ("channel", "aeron:udp?endpoint=localhost:40123")),
        ("writerId=", ("writerId", "")),
    ],
)
def test_an_option_is_divided_at_its_first_equals_sign(text: str, parsed: tuple[str, str]) -> None:
    assert parse_option(text) == parsed


@pytest.mark.parametrize("text", ["streamId", "=1001", ""])
def test_an_option_without_name_or_equals_sign_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected NAME=VALUE"):
        parse_option(text)


@pytest.mark.parametrize("job", [aeron_to_delta, delta_to_aeron])
def test_every_job_takes_any_number_of_options(job: object) -> None:
    more = ["--option", "streamId=7", "--table-option", "mergeSchema=true"]
    args = job.command_line().parse_args([*REQUIRED, *more])
    assert dict(args.options) == {"channel": "aeron:ipc", "streamId": "7"}
    assert dict(args.table_options) == {"mergeSchema": "true"}
    assert not args.available_now


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--table", "/t"], "the following arguments are required: --checkpoint"),
        ([*REQUIRED], "option 'streamId' is required. For example --option streamId=1001 ("),
        ([*REQUIRED, "--option", "streamId=x"], "option 'streamId' must be a whole number"),
        ([*REQUIRED, "--option", "streamId=7", "--interval", "soon"], "invalid interval 'soon'"),
        ([*REQUIRED, "--option", "streamId=7", "--intervall", "1 second"], "unrecognized arguments: --intervall"),
        ([*REQUIRED, "--option", "streamId=7", "--option", "x"], "invalid option 'x', expected NAME=VALUE"),
    ],
)
def test_wrong_arguments_end_a_job_with_one_line(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        aeron_to_delta.command_line().parse_args(arguments)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("aeron_to_delta: ")
    assert error in line


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "the following arguments are required: --end"),
        (["--end=soon"], "--end is 'soon', expected latest, an ISO time such as"),
        (["--end=-10min"], "--end is '-10min', expected latest, an ISO time such as"),
        (["--end={"], "--end is '{', expected"),
        (["--end=latest", "--start=soon"], "option 'startingTimestamp' must be"),
        (["--end=latest", "--option=startingOffsets=earliest"], "Give --start and --end"),
        (["--end=2026-03-01", "--option=payload=raw"], "option 'startingTimestamp' needs 'timestampFrom'"),
    ],
)
def test_a_wrong_range_is_refused(arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        backfill.command_line().parse_args([*REQUIRED, "--option=streamId=7", *arguments])
    assert error in capsys.readouterr().err


def test_a_table_is_a_path_or_a_name() -> None:
    assert [is_path(table) for table in ("/lake/t", "s3a://lake/t", "lake.t")] == [True, True, False]


class FakeStarter:
    """Starts fake queries. Each passes through one of ``histories``: status messages, and possibly an error."""

    def __init__(self, *histories: tuple[str | Exception, ...]) -> None:
        self.histories = list(histories)
        self.started: list[Any] = []

    def __call__(self) -> Any:
        assert all(query.removed for query in self.started), "Spark refuses a second query of the same name"
        self.started.append(FakeQuery(self.histories.pop(0)))
        return self.started[-1]


class FakeQuery:
    """The part of Spark's streaming query that ``begin`` uses. Each read of ``isActive`` moves to the next state."""

    name, id = "q", "1"

    def __init__(self, states: tuple[str | Exception, ...]) -> None:
        self._states = list(states)
        self.stopped = self.removed = False

    @property
    def isActive(self) -> bool:
        if len(self._states) > 1:
            self._states.pop(0)
        return isinstance(self._states[0], str)

    @property
    def status(self) -> dict[str, object]:
        return {"message": self._states[0]}

    def exception(self) -> Exception | None:
        return None if isinstance(self._states[0], str) else self._states[0]

    def awaitTermination(self, timeout: int) -> bool:
        self.removed = True
        raise StreamingQueryException(str(self.exception()))

    def stop(self) -> None:
        self.stopped = True


INITIALIZING = "Initializing sources"
LATE_PYTHON = (INITIALIZING, INITIALIZING, RuntimeError(f"[STREAM_FAILED] {START_FAILURE}."))


def test_a_query_that_runs_is_started_once() -> None:
    starter = FakeStarter((INITIALIZING, INITIALIZING, "Getting offsets"))
    assert begin(starter) is starter.started[0]


def test_a_query_whose_python_process_starts_too_late_is_started_again(capsys: pytest.CaptureFixture[str]) -> None:
    starter = FakeStarter(LATE_PYTHON, LATE_PYTHON, (INITIALIZING, "Getting offsets"))
    assert begin(starter) is starter.started[2]
    assert [line[:12] for line in capsys.readouterr().err.splitlines()] == ["start 1 of 6", "start 2 of 6"]


def test_a_query_that_is_about_to_end_because_of_its_python_process_is_started_again() -> None:
    """Regression: Spark set the status of the failure while the query was still active, and the job ended."""
    failing = f"Terminated with exception: {START_FAILURE}."
    starter = FakeStarter((INITIALIZING, INITIALIZING, failing, failing, LATE_PYTHON[-1]), (INITIALIZING, "Waiting"))
    assert begin(starter) is starter.started[1]


def test_a_query_whose_python_process_never_starts_is_returned_with_its_error() -> None:
    starter = FakeStarter(*[LATE_PYTHON] * BEGIN_ATTEMPTS)
    assert START_FAILURE in str(begin(starter).exception())
    assert starter.histories == []


def test_a_query_that_failed_for_another_reason_is_not_started_again() -> None:
    starter = FakeStarter((INITIALIZING, ValueError("no such stream")), ())
    assert str(begin(starter).exception()) == "no such stream"
    assert len(starter.started) == 1


def test_a_query_that_does_not_start_in_time_is_stopped_and_named() -> None:
    starter = FakeStarter((INITIALIZING,))
    with pytest.raises(
        TimeoutError, match=r"the query q did not start within 0.1 s; its last status was 'Initializing sources'"
    ):
        begin(starter, 0.1)
    assert starter.started[0].stopped


class BatchedQuery:
    """The part of Spark's streaming query that a running job uses. Each look at it ends the next of ``batches``."""

    def __init__(self, *batches: int) -> None:
        self._rows = list(batches)
        self.recentProgress: list[dict[str, int]] = []
        self.stopped = False

    @property
    def isActive(self) -> bool:
        return not self.stopped

    @property
    def status(self) -> dict[str, object]:
        self._end_batch()
        return {"isTriggerActive": bool(self._rows)}

    def awaitTermination(self, timeout: int) -> bool:
        self._end_batch()
        return not self._rows

    def stop(self) -> None:
        self.stopped = True

    def _end_batch(self) -> None:
        if self._rows:
            done = len([one for one in self.recentProgress if one["numInputRows"]])
            self.recentProgress.append({"batchId": done, "numInputRows": self._rows.pop(0)})


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_query_that_ends_by_itself_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    query = BatchedQuery(1000, 0, 0, 234, 0)
    with caplog.at_level("INFO", logger="aeron_spark.jobs"):
        assert Running(query, Event(), clock=iter(range(0, 1000, 11)).__next__).await_end() == 0  # type: ignore[arg-type]
    assert messages(caplog)[0] == "micro-batch 0 ended, 1,000 rows so far"
    assert messages(caplog)[-1] == "1,234 rows, last micro-batch: 1"
    assert not query.stopped


def test_a_query_is_stopped_after_the_micro_batch_in_which_the_signal_came(caplog: pytest.LogCaptureFixture) -> None:
    query, stop = BatchedQuery(10, 10, 10, 10), Event()
    stop.set()
    with caplog.at_level("INFO", logger="aeron_spark.jobs"):
        assert Running(query, stop).await_end() == 0  # type: ignore[arg-type]
    assert query.stopped
    assert messages(caplog) == [
        "SIGTERM: the query ends after its micro-batch", "20 rows, last micro-batch: 1",
    ]  # fmt: skip


def test_a_query_is_stopped_in_a_micro_batch_that_does_not_end(caplog: pytest.LogCaptureFixture) -> None:
    query, stop = BatchedQuery(*[0] * 100), Event()
    stop.set()
    assert Running(query, stop, clock=iter(range(100)).__next__).await_end() == 0  # type: ignore[arg-type]
    assert query.stopped
    assert messages(caplog) == ["the micro-batch did not end within 20 s: the next start repeats it"]


class FakeSession:
    """The part of Spark's session that a job uses. Its work waits until it is cancelled."""

    def __init__(self) -> None:
        self.conf = {"spark.app.id": "local-1"}
        self.is_cancelled, self.is_stopped = Event(), False

    def interruptAll(self) -> None:
        self.is_cancelled.set()

    def stop(self) -> None:
        self.is_stopped = True


def test_the_work_of_an_audit_is_cancelled_by_the_signal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spark = FakeSession()

    def build(session: object, args: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        assert spark.is_cancelled.wait(10)
        raise RuntimeError("cancelled")

    monkeypatch.setattr(session, "session", lambda name: spark)
    monkeypatch.setattr(source, "context_of", lambda spark: None)
    with caplog.at_level("INFO", logger="aeron_spark.jobs"), pytest.raises(SystemExit) as ended:
        session.run(audit.command_line(), build, audit.report, [*OF_AUDIT], is_cancelled=True)
    assert ended.value.code == 143
    assert messages(caplog)[-1] == "audit failed: SIGTERM ended it before its result"
    assert spark.is_stopped
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

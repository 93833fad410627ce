"""The command lines of the jobs, and how their queries begin."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from spark_jobs import aeron_to_delta, delta_to_aeron
from spark_jobs.session import BEGIN_ATTEMPTS, NOT_BACK, begin, is_path, name_and_value

NEEDED = ["--table", "/t", "--checkpoint", "/c"]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("streamId=1001", ("streamId", "1001")),
        ("channel=aeron:udp?endpoint=localhost:40123", ("channel", "aeron:udp?endpoint=localhost:40123")),
        ("writerId=", ("writerId", "")),
    ],
)
def test_an_option_is_a_name_and_all_behind_the_first_equals_sign(text: str, parsed: tuple[str, str]) -> None:
    assert name_and_value(text) == parsed


@pytest.mark.parametrize("text", ["streamId", "=1001", ""])
def test_what_is_no_option_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not NAME=VALUE"):
        name_and_value(text)


@pytest.mark.parametrize("job", [aeron_to_delta, delta_to_aeron])
def test_every_job_takes_any_number_of_options(job: object) -> None:
    args = job.parser().parse_args([*NEEDED, "--option", "a=1", "--option", "b=2"])  # type: ignore[attr-defined]
    assert dict(args.options) == {"a": "1", "b": "2"}
    assert not args.available_now


def test_a_table_is_a_path_or_a_name() -> None:
    assert [is_path(table) for table in ("/lake/t", "s3a://lake/t", "lake.t")] == [True, True, False]


class Starts:
    """Starts queries, of which each goes through the states of one of ``lives``: what it is at, or its error."""

    def __init__(self, *lives: tuple[str | Exception, ...]) -> None:
        self.lives = list(lives)
        self.started: list[Any] = []

    def __call__(self) -> Any:
        self.started.append(Life(self.lives.pop(0)))
        return self.started[-1]


class Life:
    """What ``begin`` asks of a query of Spark."""

    name, id = "q", "1"

    def __init__(self, states: tuple[str | Exception, ...]) -> None:
        self._states = list(states)
        self.stopped = False

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

    def stop(self) -> None:
        self.stopped = True


FIRST = "Initializing sources"
MISSED = (FIRST, FIRST, RuntimeError(f"[STREAM_FAILED] {NOT_BACK}."))


def test_a_query_that_runs_is_started_once() -> None:
    starts = Starts((FIRST, FIRST, "Getting offsets"))
    assert begin(starts) is starts.started[0]


def test_a_query_whose_python_came_too_late_is_started_again(capsys: pytest.CaptureFixture[str]) -> None:
    starts = Starts(MISSED, MISSED, (FIRST, "Getting offsets"))
    assert begin(starts) is starts.started[2]
    assert [line[:14] for line in capsys.readouterr().err.splitlines()] == ["attempt 1 of 6", "attempt 2 of 6"]


def test_a_query_whose_python_never_comes_is_returned_with_its_error() -> None:
    starts = Starts(*[MISSED] * BEGIN_ATTEMPTS)
    assert NOT_BACK in str(begin(starts).exception())
    assert starts.lives == []


def test_a_query_that_failed_otherwise_is_not_started_again() -> None:
    starts = Starts((FIRST, ValueError("no such stream")), ())
    assert str(begin(starts).exception()) == "no such stream"
    assert len(starts.started) == 1


def test_a_query_that_does_not_begin_is_stopped_and_named() -> None:
    starts = Starts((FIRST,))
    with pytest.raises(TimeoutError, match=r"the query q did not begin within 0.1 s"):
        begin(starts, 0.1)
    assert starts.started[0].stopped

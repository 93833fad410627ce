"""The command lines of the jobs."""

from __future__ import annotations

import argparse

import pytest

from spark_jobs import aeron_to_delta, delta_to_aeron
from spark_jobs.session import is_path, name_and_value

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

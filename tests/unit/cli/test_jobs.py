"""``aeron-spark jobs`` names the jobs, without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from aeron_spark.cli.main import main
from aeron_spark.jobs import NAMES
from tests.programs import ROOT

REQUIRED: Final = {
    "aeron_to_delta": "table=/t checkpoint=/c",
    "audit": "table=/t",
    "backfill": "table=/t checkpoint=/c end=latest",
    "delta_to_aeron": "table=/t checkpoint=/c",
    "mirror": "checkpoint=/c",
    "retention": "checkpoint=/c",
}


def test_the_list_has_each_job_with_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "list"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in rows] == list(NAMES)
    assert all(summary.endswith(".") for _, summary in rows)
    assert main(["jobs", "list", "--json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["name"] == NAMES[0]
    assert Path(first["path"]).is_file()


def test_each_file_of_a_job_is_listed() -> None:
    files = {path.stem for path in (ROOT / "spark_jobs").glob("*.py")} - {"__init__", "session"}
    assert files == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_job_has_a_path_and_shows_its_arguments(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "path", name]) == 0
    assert Path(capsys.readouterr().out.strip()) == ROOT / "spark_jobs" / f"{name}.py"
    assert main(["jobs", "show", name]) == 0
    shown = capsys.readouterr().out
    assert "--option NAME=VALUE" in shown
    assert f"aeron-spark jobs path {name}" in shown, "an example"


@pytest.mark.parametrize("command", ["show", "path"])
def test_an_unknown_job_is_refused_with_the_nearest_name(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", command, "aeron_to_detla"]) == 2
    assert capsys.readouterr().err == (
        "aeron-spark: no job is called 'aeron_to_detla'. Did you mean 'aeron_to_delta'?\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_option_ends_a_job_before_spark_is_loaded(name: str) -> None:
    code = "import runpy, sys; sys.modules['pyspark'] = None; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    path = ROOT / "spark_jobs" / f"{name}.py"
    required = [f"--{argument}" for argument in REQUIRED[name].split()]
    done = subprocess.run(
        [sys.executable, "-c", code, path, *required, "--option=channel=aeron:ipc", "--option=streamI=1"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line == f"{name}: unknown option 'streamI'. Did you mean 'streamId'? (--help shows the arguments)"

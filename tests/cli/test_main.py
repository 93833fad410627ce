"""Every command: imports, error texts and exit codes."""

from __future__ import annotations

import importlib
import resource
import subprocess
import sys

import click
import pytest

from aeron_spark.cli import main as entry
from aeron_spark.errors import ConnectError, OptionError
from tests.cli.conftest import run_program
from tests.programs import CONNECTOR


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; from aeron_spark.cli.main import main; code = main(['--help']); "
        "print('loaded:', sorted({'jpype', 'pyarrow', 'pyspark', 'rich'} & set(sys.modules)), code)"
    )
    work = []
    for _ in range(3):
        start = cpu_seconds_of_children()
        done = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONPATH": str(CONNECTOR)}, capture_output=True, text=True, check=True
        )
        work.append(cpu_seconds_of_children() - start)
    assert done.stdout.endswith("loaded: [] 0\n")
    assert min(work) < 0.3  # CPU time, which does not depend on other programs
    for name in entry.COMMANDS:
        assert f"  {name} " in done.stdout


def cpu_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_the_version_is_printed() -> None:
    result = run_program("--version")
    assert result.code == 0
    assert result.out.startswith("aeron-spark ")


@pytest.mark.parametrize("name", sorted(entry.COMMANDS))
def test_every_command_of_the_overview_exists_and_has_a_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = entry.COMMANDS[name]
    found = getattr(importlib.import_module(f"aeron_spark.cli.{command.module}"), command.name)
    assert isinstance(found, click.Command)
    assert entry.main([name, "--help"]) == 0
    assert f"Usage: aeron-spark {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nod"], "Unknown command 'nod'. Did you mean 'node'?"),
        (["zzz"], "Unknown command 'zzz'. Commands: backlog, "),
        (["node", "strat"], "Unknown command 'strat'. Did you mean 'start'?"),
        (["node", "start", "--lingr", "3"], "No such option"),
        (["node", "start", "--lingr", "3"], "--linger"),
        (["stat", "surplus"], "unexpected extra argument"),
        (["node", "start", "--timeout", "soon"], "'soon' is not a valid float"),
        (["node", "start", "--max-replays", "x"], "max_replays 'x' is not a whole number above 0. Write a number"),
        (
            ["node", "start", "--set", "nonsense"],
            "--set 'nonsense' has no '='. Write --set NAME=VALUE, such as --set aeron.x=y.",
        ),
        (["node", "status", "--aeron-dir", "here"], "aeronDir 'here' is a relative path"),
    ],
)
def test_a_wrong_command_line_ends_with_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry.main(arguments) == entry.WRONG_COMMAND_LINE
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConnectError("no server responds", remedy="Look."), 1), (OptionError("odd", remedy="Look."), 2)],
)
def test_an_error_is_printed_as_a_sentence_with_an_exit_code(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr("aeron_spark.node.status", fail)
    assert entry.main(["node", "status"]) == code
    assert capsys.readouterr().err == f"aeron-spark: {error}\n"


def test_a_closed_pipe_ends_a_command_without_a_traceback(own_dir: object) -> None:
    done = subprocess.run(
        f"{sys.executable} -m aeron_spark doctor --json | head -n 1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        env={"PYTHONPATH": str(CONNECTOR), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr

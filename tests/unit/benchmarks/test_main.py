from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

import pytest

from benchmarks import __main__ as program
from benchmarks.corpora import CORPORA
from benchmarks.quiet import BusyMachineError


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the arguments of each measurement, which measures nothing, on a quiet machine."""
    calls: list[Any] = []
    monkeypatch.setattr(program, "_measure", lambda args: calls.append(args) or [])
    monkeypatch.setattr(program, "wait_for_quiet", lambda *_: 0.1)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return calls


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
    return program.main()


def refuse_busy(*_: object) -> float:
    raise BusyMachineError("busy")


def test_a_busy_machine_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, measured: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "wait_for_quiet", refuse_busy)
    assert run(monkeypatch, "--only", "commands") == 2
    assert not measured
    assert capsys.readouterr().err == "busy\n"


def test_the_quick_form_runs_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch, measured: list[Any]) -> None:
    monkeypatch.setattr(program, "wait_for_quiet", refuse_busy)
    assert run(monkeypatch, "--only", "commands", "--quick", "--rounds", "1") == 0
    assert [args.only for args in measured] == [["commands"]]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--rounds", "4"], "at least 5 rounds"),
        (["--update"], "--update needs --only"),
        (["--only", "nothing"], "invalid choice: 'nothing'"),
    ],
)
def test_a_run_that_could_not_be_published_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    measured: list[Any],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    error: str,
) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, *arguments)
    assert error in capsys.readouterr().err
    assert not measured


def test_python_that_compiles_its_sources_in_each_process_is_refused(
    monkeypatch: pytest.MonkeyPatch, measured: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with pytest.raises(SystemExit):
        run(monkeypatch, "--only", "commands")
    assert "PYTHONDONTWRITEBYTECODE" in capsys.readouterr().err
    assert not measured


@pytest.mark.parametrize("name", program.NAMES)
def test_each_name_is_a_module_of_its_own(name: str) -> None:
    assert importlib.util.find_spec(f"benchmarks.{name}")


def test_the_bars_are_of_sizes_that_are_measured() -> None:
    reading = importlib.import_module("benchmarks.reading_peers")
    writing = importlib.import_module("benchmarks.writing_peers")
    assert {size for size, _ in reading.BARS} <= set(CORPORA)
    assert set(writing.BARS) <= set(writing.SIZES) <= set(CORPORA)

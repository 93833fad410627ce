"""The exit codes that all commands share: 0, 1, 2, 3 and 130."""

from __future__ import annotations

import click
import pytest

from aeron_spark.cli import main as module
from aeron_spark.cli.main import main
from aeron_spark.errors import AeronSparkError, InUseError, OptionError, RefusedError, SetupError


def exit_code_of(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    @click.command()
    def command() -> None:
        raise error

    monkeypatch.setattr(module.LazyCommands, "get_command", lambda *_: command)
    return main(["server"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RefusedError("no"), 1),
        (SetupError("no Java"), 1),
        (OptionError("wrong"), 2),
        (click.UsageError("wrong"), 2),
        (InUseError("another process uses it"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_an_error_ends_a_command_with_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    assert exit_code_of(monkeypatch, error) == code


def test_end_of_input_at_a_prompt_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_code_of(monkeypatch, EOFError()) == 1


def test_the_base_class_of_errors_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_code_of(monkeypatch, AeronSparkError("something")) == 1

"""Commands that use their JVM for a few calls start it with the quick compiler only."""

from __future__ import annotations

import jpype
import pytest

from aeron_spark.aeron import jvm
from aeron_spark.cli.main import COMMANDS, SHORT_COMMANDS, main


def jvm_arguments(monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """Return the arguments of a JVM that would start after this command line was read."""
    given: list[str] = []

    def record(*arguments: str, **named: object) -> None:
        given.extend(arguments)
        raise RuntimeError("no JVM in this test")

    for name, value in (("_is_short_use", False), ("_keeps_signals", False), ("_started_in", None)):
        monkeypatch.setattr(jvm, name, value)
    for name, result in (("classpath", []), ("find_library", "libjvm.so"), ("check_version", None)):
        monkeypatch.setattr(jvm, name, lambda *_, result=result: result)
    monkeypatch.delenv(jvm.OPTIONS_VARIABLE)  # the tests' own JVMs have the quick compiler
    monkeypatch.setattr(jpype, "isJVMStarted", lambda: False)
    monkeypatch.setattr(jpype, "startJVM", record)
    assert main([*line.split(), "--help"]) == 0
    with pytest.raises(RuntimeError, match="no JVM in this test"):
        jvm.start()
    return given


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_only_short_commands_start_a_jvm_with_the_quick_compiler(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    assert (jvm.SHORT_USE in jvm_arguments(monkeypatch, command)) == (command in {"ping", "recordings", "streams"})


def test_the_names_are_those_of_commands() -> None:
    assert set(COMMANDS) >= SHORT_COMMANDS

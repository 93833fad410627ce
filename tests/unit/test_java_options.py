"""The environment variable with arguments for Java, and the class data with which the JVMs of tests start."""

from __future__ import annotations

from pathlib import Path

import jpype
import pytest

from aeron_spark.aeron import jvm
from aeron_spark.errors import SetupError
from tests.class_data import QUICK, java_options


@pytest.fixture
def started_with(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of the JVM that the test starts; the start fails, as with arguments that Java refuses."""
    given: list[str] = []

    def record(_: str, *arguments: str, **named: object) -> None:
        given.extend(arguments)
        raise RuntimeError("Unable to start JVM")

    monkeypatch.setattr(jvm, "_started_in", None)
    for name in ("_is_short_use", "_keeps_signals"):  # an earlier test may have run a command, which sets them
        monkeypatch.setattr(jvm, name, False)
    for name, result in (("classpath", []), ("find_library", "libjvm.so"), ("check_version", None)):
        monkeypatch.setattr(jvm, name, lambda *_, result=result: result)
    monkeypatch.setattr(jpype, "isJVMStarted", lambda: False)
    monkeypatch.setattr(jpype, "startJVM", record)
    return given


def test_arguments_in_the_environment_follow_those_of_the_package(
    monkeypatch: pytest.MonkeyPatch, started_with: list[str]
) -> None:
    monkeypatch.setenv("AERON_SPARK_JAVA_OPTIONS", "-Xmx512m '-Dname=two words'")
    with pytest.raises(SetupError):
        jvm.start("-Dextra=1")
    assert started_with[-3:] == ["-Dextra=1", "-Xmx512m", "-Dname=two words"]


@pytest.mark.parametrize("options", ["-XX:NoSuch", "'"])
def test_arguments_that_java_refuses_are_named_with_their_variable(
    monkeypatch: pytest.MonkeyPatch, started_with: list[str], options: str
) -> None:
    monkeypatch.setenv("AERON_SPARK_JAVA_OPTIONS", options)
    with pytest.raises(SetupError, match=r"Java did not start with the arguments .* in AERON_SPARK_JAVA_OPTIONS"):
        jvm.start()


def test_without_the_variable_an_error_of_java_is_not_changed(
    monkeypatch: pytest.MonkeyPatch, started_with: list[str]
) -> None:
    monkeypatch.delenv("AERON_SPARK_JAVA_OPTIONS")
    with pytest.raises(RuntimeError, match="Unable to start JVM"):
        jvm.start()


def test_the_jvms_of_tests_use_the_class_data_of_the_set_up_if_it_exists(tmp_path: Path) -> None:
    assert java_options(tmp_path / "missing") == (QUICK,)
    (tmp_path / "classes.jsa").touch()
    assert f"-XX:SharedArchiveFile={tmp_path}/classes.jsa" in java_options(tmp_path / "classes.jsa")

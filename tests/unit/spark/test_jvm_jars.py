"""The jars of ``format("aeron-jvm")``: in a session's builder, and on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from aeron_spark.aeron import jvm
from aeron_spark.cli.main import main
from aeron_spark.errors import SetupError, UsageError
from aeron_spark.spark import configure


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> SparkSession.Builder:
    """A builder with options of its own: those of Spark's are shared by all builders of the process."""
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    builder = SparkSession.Builder()
    monkeypatch.setattr(builder, "_options", {}, raising=False)
    return builder


def options_of(builder: SparkSession.Builder) -> dict[str, str]:
    return dict(vars(builder)["_options"])


def test_the_builder_gets_the_jars_behind_its_own_and_this_python(builder: SparkSession.Builder) -> None:
    assert configure(builder.config("spark.jars", "/own/a.jar")) is builder
    found = options_of(builder)
    jars = found["spark.jars"].split(",")
    assert jars == ["/own/a.jar", *jvm.spark_classpath()]
    assert [Path(jar).name.split("-1")[0] for jar in jars[1:]] == [
        "aeron-all",
        "aeron-spark-helper.jar",
        "aeron-spark-jvm.jar",
    ]
    assert found["spark.aeron.python"] == sys.executable
    assert options_of(configure(builder)) == found, "a second call must not add the jars again"


def test_a_jvm_that_runs_without_the_jars_is_refused(
    builder: SparkSession.Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = ["/own/a.jar"]
    conf = SimpleNamespace(get=lambda name: ",".join(jars) if name == "spark.jars" else None)
    monkeypatch.setattr(SparkContext, "_gateway", object())
    monkeypatch.setattr(SparkContext, "_active_spark_context", SimpleNamespace(getConf=lambda: conf))
    with pytest.raises(UsageError, match=r"runs already, without the jars .* --jars \$\(aeron-spark jars\)"):
        configure(builder)
    assert options_of(builder) == {}
    jars += [f"file://{path}" for path in jvm.spark_classpath()]
    configure(builder)


def test_a_package_without_the_jar_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jvm, "SPARK_JAR", tmp_path / "aeron-spark-jvm.jar")
    with pytest.raises(SetupError, match=f"the jar 'aeron-spark-jvm' is missing from {tmp_path}"):
        jvm.spark_classpath()


def test_the_command_prints_the_jars_for_spark_submit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jars"]) == 0
    assert capsys.readouterr().out == ",".join(jvm.spark_classpath()) + "\n"
    assert main(["jars", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"jars": jvm.spark_classpath()}

"""The wheel has all files of an installation: jars, types, Spark's entry module and the console command."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Sequence
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.programs import ROOT
from tests.wheels import build_wheel


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source tree."""
    return build_wheel(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--target", target, wheel, cwd=target)
    return target


def names(wheel: Path) -> Sequence[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_has_the_name_of_the_distribution_and_runs_on_any_platform(wheel: Path) -> None:
    assert wheel.name == "aeron_spark-0.1.0-py3-none-any.whl"


def test_the_wheel_has_exactly_the_three_jars(wheel: Path) -> None:
    jars = sorted(name for name in names(wheel) if name.endswith(".jar"))
    assert jars == [
        "aeron_spark/jars/aeron-all-1.51.0.jar",
        "aeron_spark/jars/aeron-spark-helper.jar",
        "aeron_spark/jars/spark/aeron-spark-jvm.jar",
    ]


@pytest.mark.parametrize(
    ("jar", "folder"),
    [("aeron-spark-helper.jar", "jars/src"), ("spark/aeron-spark-jvm.jar", "jars/spark/src")],
)
def test_each_own_jar_in_the_wheel_has_all_its_classes(installed: Path, jar: str, folder: str) -> None:
    with zipfile.ZipFile(installed / "aeron_spark" / "jars" / jar) as built:
        classes = {name for name in built.namelist() if name.endswith(".class")}
    sources = ROOT / folder / "main" / "java"
    expected = {str(source.relative_to(sources).with_suffix(".class")) for source in sources.rglob("*.java")}
    assert expected
    assert expected <= classes


def test_the_wheel_has_exactly_the_modules_of_the_source(wheel: Path) -> None:
    sources = {str(path.relative_to(ROOT / "connector")) for path in (ROOT / "connector").rglob("*.py")}
    sources |= {f"aeron_spark/jobs/{path.name}" for path in (ROOT / "spark_jobs").glob("*.py")}
    assert {name for name in names(wheel) if name.endswith(".py")} == sources
    assert {"aeron_spark/py.typed", "pyspark_aeron/__init__.py"} <= set(names(wheel))


def test_the_console_command_is_declared(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        entries = ConfigParser()
        entries.read_string(archive.read(name).decode())
    assert entries["console_scripts"]["aeron-spark"] == "aeron_spark.cli.main:main"


def test_an_installed_package_finds_its_jars(installed: Path) -> None:
    code = "from aeron_spark.aeron.jvm import classpath; print(*classpath(), sep='\\n')"
    found = run(sys.executable, "-c", code, cwd=installed).split()
    assert [Path(jar).parent for jar in found] == [installed / "aeron_spark" / "jars"] * 2


def test_an_installed_package_finds_its_jobs_without_spark(installed: Path) -> None:
    code = "import sys; sys.modules['pyspark'] = None; from aeron_spark.cli.main import main; sys.exit(main())"
    (path,) = run(sys.executable, "-c", code, "jobs", "path", "aeron_to_delta", cwd=installed).splitlines()
    assert path == str(installed / "aeron_spark" / "jobs" / "aeron_to_delta.py")
    shown = run(sys.executable, "-c", code, "jobs", "show", "aeron_to_delta", cwd=installed)
    assert "--checkpoint" in shown


def test_spark_finds_the_source_without_a_registration(installed: Path) -> None:
    code = """
import pkgutil, sys
import pyspark_aeron
assert "aeron_spark" not in sys.modules, "the entry module loaded the package"
assert [m.name for m in pkgutil.iter_modules() if m.name == "pyspark_aeron"] == ["pyspark_aeron"]
from pyspark.sql.datasource import DataSource
print(pyspark_aeron.DefaultSource.name(), issubclass(pyspark_aeron.DefaultSource, DataSource), "jpype" in sys.modules)
"""
    assert run(sys.executable, "-c", code, cwd=installed).split() == ["aeron", "True", "False"]

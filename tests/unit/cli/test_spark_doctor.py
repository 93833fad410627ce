"""``doctor``: what Spark would run on this machine; each finding is provoked, and has its remedy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aeron_spark.cli.spark_doctor import Diagnosis, examine_spark

Findings = dict[str, Diagnosis]


def found_with(**environ: str) -> Findings:
    """Return the findings of a user with these variables, by their subjects."""
    return {one.subject: one for one in examine_spark(environ)}


def script(path: Path, text: str) -> str:
    """Write a program; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def java(tmp_path: Path) -> Callable[[str], str]:
    """Write a Java that prints a version; return its JAVA_HOME."""

    def write(version: str) -> str:
        home = tmp_path / f"java-{version}"
        script(home / "bin" / "java", f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        return str(home)

    return write


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Add the metadata of a package to those that this process finds, before the real ones."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    def add(name: str, version: str) -> None:
        folder = tmp_path / "site" / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    return add


def test_a_machine_without_problems_has_no_finding(java: Callable[[str], str]) -> None:
    found = found_with(JAVA_HOME=java("17.0.9"), PYSPARK_PYTHON=sys.executable)
    assert {one.verdict for one in found.values()} == {"ok"}
    assert found["spark java"].what.endswith(": Java 17")
    assert found["spark python"].what == f"PYSPARK_PYTHON is {sys.executable}, and it has aeron-spark"


def test_a_java_home_without_java_is_broken_also_if_the_path_has_one(tmp_path: Path) -> None:
    """Regression: the finding was that Java is fine, and Spark did not start."""
    path = script(tmp_path / "bin" / "java", "#!/bin/sh\necho 'openjdk version \"21\"' >&2\n")
    found = found_with(JAVA_HOME="/no/such/java", PATH=str(Path(path).parent))["spark java"]
    assert (found.verdict, found.what.partition(":")[0]) == (
        "broken", "JAVA_HOME is /no/such/java, and Spark cannot run /no/such/java/bin/java",
    )  # fmt: skip
    assert found.remedy.startswith("Set JAVA_HOME to the folder of a Java 17 or newer, or unset it")
    assert found_with(PATH=str(Path(path).parent))["spark java"] == Diagnosis(
        "spark java", "ok", "java on the PATH: Java 21"
    )


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21"])
def test_an_old_java_is_broken(java: Callable[[str], str], version: str) -> None:
    found = found_with(JAVA_HOME=java(version))["spark java"]
    assert found.verdict == "broken"
    assert found.what.endswith(f"Java {'8' if '_' in version else '11'}, and Spark needs Java 17 or newer")
    assert "Set JAVA_HOME" in found.remedy


def test_a_machine_without_java_is_broken(tmp_path: Path) -> None:
    found = found_with(PATH=str(tmp_path))["spark java"]
    assert (found.verdict, found.what) == (
        "broken", "Spark finds no Java: JAVA_HOME is not set, and no java is on the PATH",
    )  # fmt: skip
    assert "openjdk-17" in found.remedy
    script(tmp_path / "bin" / "java", "#!/bin/sh\n")
    silent = found_with(JAVA_HOME=str(tmp_path))["spark java"]
    assert (silent.verdict, silent.what.endswith("/bin/java -version prints no version")) == ("broken", True)


def test_an_old_pyspark_is_broken(installed: Callable[[str, str], None]) -> None:
    installed("pyspark", "3.5.1")
    old = found_with()["spark"]
    assert old.verdict == "broken"
    assert old.what.startswith("PySpark 3.5.1 is too old: aeron-spark needs 4.")
    assert "pip install 'pyspark>=4." in old.remedy


def test_a_pyspark_that_is_newer_than_the_tested_ones_is_a_warning(installed: Callable[[str, str], None]) -> None:
    installed("pyspark", "5.0.0")
    new = found_with()["spark"]
    assert new.verdict == "warning"
    assert new.what.startswith("PySpark 5.0.0 is newer than 4.")
    assert new.remedy.startswith("If a query fails, install PySpark 4.")


def test_a_spark_home_of_another_version_is_broken(tmp_path: Path, java: Callable[[str], str]) -> None:
    (tmp_path / "jars").mkdir()
    assert found_with(SPARK_HOME=str(tmp_path))["spark home"].what.endswith("which has no Spark in jars/")
    (tmp_path / "jars" / "spark-core_2.12-3.5.1.jar").touch()
    found = found_with(SPARK_HOME=str(tmp_path))["spark home"]
    assert found.verdict == "broken"
    assert f"SPARK_HOME is {tmp_path} with Spark 3.5.1, and PySpark is 4." in found.what
    assert found.remedy.startswith("Unset SPARK_HOME")


@pytest.fixture
def without(tmp_path: Path) -> str:
    """A Python that does not have the package."""
    return script(tmp_path / "bin" / "python3", f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')


@pytest.mark.parametrize("name", ["PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"])
def test_a_python_without_the_package_is_broken(without: str, name: str) -> None:
    found, *_ = (one for one in examine_spark({name: without}) if one.subject == "spark python")
    assert found.verdict == "broken"
    assert found.what.startswith(f"{name} is {without}, and that Python has no aeron_spark, pyspark_aeron, ")
    assert found.remedy.startswith(f"Set PYSPARK_PYTHON={sys.executable}")
    missing, *_ = (one for one in examine_spark({name: "python-no-such"}) if one.subject == "spark python")
    assert missing.what.endswith("that Python is not on this machine")


def test_the_python_of_spark_defaults_is_checked(tmp_path: Path, without: str) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"# a comment\nspark.pyspark.python   {without}\nspark.x=y\n")
    found = found_with(SPARK_CONF_DIR=str(tmp_path))["spark python"]
    assert (found.verdict, found.what.partition(",")[0]) == (
        "broken", f"spark.pyspark.python in spark-defaults.conf is {without}",
    )  # fmt: skip


def test_the_python3_of_the_path_without_the_package_is_a_warning(
    without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``register(spark)`` replaces it for workers of this machine."""
    monkeypatch.setenv("PATH", str(Path(without).parent))
    found = found_with()["spark python"]
    assert found.verdict == "warning"
    assert "register(spark)" in found.remedy


def test_a_notebook_program_is_not_taken_for_a_python() -> None:
    found = list(examine_spark({"PYSPARK_DRIVER_PYTHON": "jupyter", "PYSPARK_PYTHON": sys.executable}))
    assert [one.verdict for one in found if one.subject == "spark python"] == ["ok"]


def test_a_python_with_another_release_is_broken(tmp_path: Path, installed: Callable[[str, str], None]) -> None:
    installed("aeron-spark", "0.0.7")
    before = f"import sys\nsys.path.insert(0, {str(tmp_path / 'site')!r})\nexec(sys.argv[2])\n"
    other = script(tmp_path / "python", f"#!{sys.executable}\n{before}")
    sys.path.remove(str(tmp_path / "site"))
    found = found_with(PYSPARK_PYTHON=other)["spark python"]
    assert found.verdict == "broken"
    assert "that Python has aeron-spark 0.0.7, while this is " in found.what
    assert found.remedy.startswith(f"{other} -m pip install aeron-spark==")


def test_a_missing_file_of_spark_jars_is_broken(tmp_path: Path) -> None:
    (tmp_path / "here.jar").touch()
    (tmp_path / "spark-defaults.conf").write_text(f"spark.jars {tmp_path}/here.jar, /no/such.jar,s3a://x/remote.jar\n")
    found = [one for one in examine_spark({"SPARK_CONF_DIR": str(tmp_path)}) if one.subject == "spark jars"]
    assert [(one.verdict, one.what) for one in found] == [
        ("broken", "spark.jars in spark-defaults.conf names /no/such.jar, which does not exist")
    ]


def test_without_pyspark_there_is_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aeron_spark.cli.spark_doctor._release", lambda name: None)
    (found,) = examine_spark({"JAVA_HOME": "/no/such/java"})
    assert (found.verdict, found.what.endswith("has no PySpark, which only programs with Spark need")) == ("ok", True)
